# `make` prints what there is. Every target installs what it needs, and reports first what it cannot install.
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
STAGES := $(PYTHON) tests/stages
# CLUSTER_NAME chooses among local clusters, which can run side by side.
CLUSTER := $(PYTHON) localcluster --name $(or $(CLUSTER_NAME),main)
export ONLY

.DEFAULT_GOAL := help
.PHONY: docs help release demo demo-tutorial test times lint unit apiserver cli charts gitops queues trainer trainer-gpu horovod-versions kubernetes-versions site localcluster e2e \
        environment images cluster-up cluster-down crd python screenshots

help: ## print the targets
	@echo "HorovodJob: distributed Keras/Horovod training on Kubernetes"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'
	@echo "ONLY=EXPRESSION selects tests as 'pytest -k' does: make e2e ONLY=test_suspend"
	@echo "With KUBECONFIG set, demo, test and e2e use that cluster, with the images of IMAGE_REGISTRY."

demo: python ## train on a cluster: bring it up, install the operator, run an example job, watch it
	@$(PYTHON) demo/demo.py

demo-tutorial: environment ## type the Batch AI tutorial of 2018 on the local cluster, command by command, and watch it
	@PYTHONPATH=tests .venv/bin/python -m demo.tutorial

test: python ## run every check: lint, types, contracts, unit, API server, trainer, end to end
	@$(STAGES) all

times: python ## print what each stage of `make test` took, with a cold and with a warm cache
	@$(STAGES) times

lint: environment ## check style, types, architecture contracts and shell scripts
	@$(STAGES) lint

unit: environment ## run the tests that need neither a cluster nor TensorFlow nor root
	@$(STAGES) unit

apiserver: environment ## run the tests against a real API server without a node, with the real Kueue
	@$(STAGES) kueue
	@$(STAGES) apiserver

cli: environment ## run the tests of `hvj` against a real API server and servers that speak Azure's protocols
	@$(STAGES) control-plane
	@$(STAGES) cli

charts: environment ## run the tests of charts, manifests, monitoring and releases against a real API server
	@$(STAGES) helm
	@$(STAGES) charts

gitops: environment ## run Argo CD and Flux with the documented repository, against a real API server
	@$(STAGES) engines
	@$(STAGES) gitops

queues: environment ## run Kueue with hundreds of jobs, kills and several clusters (10 minutes)
	@$(STAGES) kueue
	@$(STAGES) queues

trainer: environment ## run the tests with real ranks under mpirun
	@$(STAGES) trainer-environment
	@$(STAGES) trainer

horovod-versions: environment ## build and test Horovod with each version of TensorFlow and Python (10 minutes each)
	@$(STAGES) horovod-versions

kubernetes-versions: environment ## run the tests of resource, operator and charts, with NODES=1 also jobs, with each version of Kubernetes (20 minutes each)
	@$(STAGES) helm
	@$(STAGES) kubernetes-versions

localcluster: environment ## run the tests of the local cluster itself
	@$(STAGES) binaries
	@$(STAGES) localcluster

e2e: environment ## run the end-to-end tests with real pods
	@test -n "$(KUBECONFIG)" || $(STAGES) trainer-environment
	@$(STAGES) e2e
	@test -n "$(ONLY)" || $(STAGES) e2e-serial

environment: python ## make .venv as far as lint and unit tests need it
	@$(STAGES) environment

images: python ## build operator and trainer image, without Docker, and print their names
	@$(PYTHON) localcluster/images build

trainer-gpu: python ## build the trainer image for GPUs, check it and print its size (7 minutes after the downloads, 25 GB of disk)
	@$(PYTHON) localcluster/images build trainer-gpu

release: environment ## build what a release consists of into dist/, for a registry with REGISTRY=... PROJECT=OWNER/REPOSITORY
	@.venv/bin/python release build $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PROJECT),--project $(PROJECT))

cluster-up: python ## start the local cluster
	@$(CLUSTER) up

cluster-down: ## end the local cluster; nothing of it keeps running
	@$(CLUSTER) down

crd: environment ## generate the CustomResourceDefinition, and the schema of the job chart's values, from the models
	@.venv/bin/python -m horovodjob.api.crd manifests/base/crd.yaml
	@cp manifests/base/crd.yaml charts/horovodjob-operator/files/crd.yaml
	@.venv/bin/python -m horovodjob.api.chart charts/horovodjob
	@echo "wrote crd.yaml in manifests/base and charts/horovodjob-operator/files, and the job chart's values.schema.json"

screenshots: environment ## take the pictures of the dashboard in docs/images
	@$(STAGES) control-plane
	@PYTHONPATH=tests:. .venv/bin/python benchmarks/dashboard_screenshots.py

docs: environment ## generate docs/api.md from the models, and the tables of values in the charts' READMEs
	@.venv/bin/python -m horovodjob.api.reference docs/api.md
	@echo "wrote docs/api.md"
	@PYTHONPATH=tests .venv/bin/python -m charts.readme charts/horovodjob-operator charts/horovodjob

site: python ## build the site of the documentation into build/site
	@$(STAGES) site

python:
	@$(PYTHON) -c 'import sys; sys.exit("install Python 3.11 or newer as python3" if sys.version_info < (3, 11) else 0)'

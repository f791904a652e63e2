# `make` says what there is. Every target installs what it needs, and says first what it cannot install.
MAKEFLAGS += --no-print-directory
PYTHON ?= python3
STAGES := $(PYTHON) tests/stages.py
# CLUSTER_NAME chooses among local clusters, which can run side by side.
CLUSTER := $(PYTHON) tests/cluster --name $(or $(CLUSTER_NAME),main)

.DEFAULT_GOAL := help
.PHONY: docs help demo test lint unit apiserver trainer trainer-gpu e2e environment images cluster-up cluster-down crd python

help: ## say what there is
	@echo "HorovodJob: distributed Keras/Horovod training on Kubernetes"
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-22s %s\n", $$1, $$2}'
	@echo "With KUBECONFIG set, demo, test and e2e use that cluster, with the images of IMAGE_REGISTRY."

demo: python ## train on a cluster: bring it up, install the operator, run an example job, watch it
	@$(PYTHON) demo/demo.py

test: python ## every check there is: lint, types, contracts, unit, API server, trainer, end to end
	@$(STAGES) all

lint: environment ## style, types, architecture contracts, shell scripts
	@$(STAGES) lint

unit: environment ## tests that need neither a cluster nor TensorFlow
	@$(STAGES) unit

apiserver: environment ## tests against a real API server without a node
	@$(CLUSTER) build
	@$(STAGES) apiserver

trainer: environment ## tests with real ranks under mpirun
	@$(STAGES) trainer

e2e: environment ## end-to-end tests with real pods
	@$(STAGES) e2e

environment: python ## .venv with everything that uv.lock names
	@$(STAGES) environment

images: python ## build operator and trainer image, without Docker, and print their names
	@$(PYTHON) tests/cluster/images.py build

trainer-gpu: python ## build the trainer image for GPUs, check it and print its size (a quarter of an hour)
	@$(PYTHON) tests/cluster/images.py build trainer-gpu

cluster-up: python ## start the local cluster
	@$(CLUSTER) up

cluster-down: ## end the local cluster; nothing of it keeps running
	@$(CLUSTER) down

crd: environment ## generate the CustomResourceDefinition from the models
	@.venv/bin/python -m horovodjob.api.crd manifests/base/crd.yaml
	@echo "wrote manifests/base/crd.yaml"

docs: environment ## generate docs/api.md from the models
	@.venv/bin/python -m horovodjob.api.reference docs/api.md
	@echo "wrote docs/api.md"

python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed as python3" if sys.version_info < (3, 11) else 0)'

#!/bin/sh
# Deletes the jobs of this repository that have ended and are no longer in Git, with their ConfigMaps. Run it in a clone of the
# branch that Argo CD or Flux applies, with all folders of jobs: a job that is in Git would be created, and run, again.
# Usage: ./delete-earlier-runs.sh NAMESPACE FOLDER...
set -eu
namespace=$1
shift
rendered=$(for folder; do kubectl kustomize "$folder"; echo ---; done)
in_git=$(printf '%s\n' "$rendered" | kubectl get --ignore-not-found --output name --filename -)
ended=$(kubectl --namespace "$namespace" get horovodjobs --selector app.kubernetes.io/managed-by=gitops \
  --field-selector status.completionTime!= --output name)
for job in $ended; do
  if ! printf '%s\n' "$in_git" | grep --quiet --line-regexp --fixed-strings "$job"; then
    kubectl --namespace "$namespace" delete --ignore-not-found "$job" "configmap/${job##*/}"
  fi
done

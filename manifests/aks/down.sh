#!/usr/bin/env bash
# Deletes what manifests/aks/up.sh has created: the resource group with the cluster, the registry and the share with all models.
#
#   manifests/aks/down.sh [--group NAME] [--cluster NAME] [--yes]
set -euo pipefail

GROUP=horovod CLUSTER=horovod YES=false

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case $1 in
    --group | --cluster)
      [ -n "${2-}" ] || die "$1 needs a value"
      [ "$1" = --group ] && GROUP=$2 || CLUSTER=$2
      shift
      ;;
    --yes) YES=true ;;
    *) die "$1 is no option; see the first lines of $0" ;;
  esac
  shift
done

az account show --output none 2>/dev/null || die "you are not signed in: run az login"
if [ "$(az group exists --name "$GROUP")" = false ]; then
  echo "there is no resource group $GROUP"
  exit
fi
[ "$(az group show --name "$GROUP" --query tags.horovodjob --output tsv)" = up ] ||
  die "resource group $GROUP is older than up.sh, so it may have other objects: delete those of the cluster yourself," \
    "beginning with az aks delete --resource-group $GROUP --name $CLUSTER"
az resource list --resource-group "$GROUP" --query '[].[type, name]' --output tsv
if [ "$YES" = false ]; then
  read -r -p "Delete all of it, with all files on the share? Type the name of the group: " answer || answer=
  [ "$answer" = "$GROUP" ] || die "nothing is deleted"
fi
# The budget is an object of the subscription. Another one with this name has another filter.
budget="/subscriptions/$(az account show --query id --output tsv)/providers/Microsoft.Consumption/budgets/$CLUSTER?api-version=2024-08-01"
of_group=$(az rest --method get --url "$budget" --query 'properties.filter.dimensions.values[0]' --output tsv 2>/dev/null) || of_group=
[ "$of_group" != "$GROUP" ] || az rest --method delete --url "$budget"
az group delete --name "$GROUP" --yes || die "the group was not deleted; the message above has the reason. Run this command again"
echo "resource group $GROUP is deleted; that of its nodes is deleted with the cluster"

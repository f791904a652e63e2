#!/usr/bin/env bash
# From a subscription of Azure to the curves of the quick start's first job. docs/aks-up.md describes it.
#
#   manifests/aks/up.sh [--gpu] [--gpu-size SIZE] [--gpu-nodes N] [--spot] [--email ADDRESS] [--budget AMOUNT]
#                       [--group NAME] [--location REGION] [--cluster NAME] [--namespace NAME] [--no-monitoring]
#                       [--check] [--what-if]
#
# It can be run again: it repeats what is not done. It ends at the first missing right or quota with what to do.
set -euo pipefail
cd "$(dirname "$0")/../.."

VERSION=0.1.0
NEWEST_AZ_THAT_IS_TOO_OLD=2.77
GROUP=horovod LOCATION=eastus CLUSTER=horovod NAMESPACE=training
GPU=false GPU_SIZE=Standard_NC4as_T4_v3 GPU_NODES=4 SPOT=false CPU_SIZE=Standard_D4s_v5 CPU_NODES=2
EMAIL="" BUDGET=500 MONITORING=true CHECK=false WHAT_IF=false

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

step() {
  printf '\n== %s\n' "$*" >&2
}

while [ $# -gt 0 ]; do
  case $1 in
    --gpu) GPU=true ;;
    --spot) SPOT=true ;;
    --no-monitoring) MONITORING=false ;;
    --check) CHECK=true ;;
    --what-if) WHAT_IF=true ;;
    --gpu-size | --gpu-nodes | --email | --budget | --group | --location | --cluster | --namespace)
      [ -n "${2-}" ] || die "$1 needs a value"
      name=${1#--} && name=${name//-/_}
      declare "${name^^}=$2"
      shift
      ;;
    *) die "$1 is no option; see the first lines of $0" ;;
  esac
  shift
done
[[ $GPU_NODES =~ ^[1-9][0-9]*$ ]] || die "--gpu-nodes $GPU_NODES is no number of nodes"
[[ $BUDGET =~ ^[1-9][0-9]*$ ]] || die "--budget $BUDGET is no amount, such as 500"

# --- what this machine needs ---------------------------------------------------------------------------------------

check_tools() {
  local tool version
  for tool in az kubectl helm hvj python3; do
    command -v "$tool" >/dev/null || die "$tool is not installed; docs/aks-up.md names where each program comes from"
  done
  version=$(az version --query '"azure-cli"' --output tsv)
  [ "$(printf '%s\n' "$NEWEST_AZ_THAT_IS_TOO_OLD.99" "$version" | sort -V | tail -1)" = "$version" ] ||
    die "az $version is too old: run az upgrade, to 2.78 or newer"
}

# --- what the subscription needs -----------------------------------------------------------------------------------

check_rights() {
  local scope=$1 permissions
  permissions=$(az rest --method get --output json \
    --url "$scope/providers/Microsoft.Authorization/permissions?api-version=2022-04-01") ||
    die "your rights on $scope are unknown; the message above has the reason"
  python3 -c '
import fnmatch, json, sys
needed = {
    "Microsoft.Resources/deployments/write": "Contributor",
    "Microsoft.ContainerService/managedClusters/write": "Contributor",
    "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action": "Contributor",
    "Microsoft.ContainerRegistry/registries/write": "Contributor",
    "Microsoft.Storage/storageAccounts/write": "Contributor",
    "Microsoft.ManagedIdentity/userAssignedIdentities/write": "Contributor",
    "Microsoft.Authorization/roleAssignments/write": "Role Based Access Control Administrator",
}
if "resourcegroups" not in sys.argv[1].lower():
    needed = {"Microsoft.Resources/subscriptions/resourceGroups/write": "Contributor"} | needed
roles = json.load(sys.stdin)["value"]
def has(action):
    def matches(patterns):
        return any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)
    return any(matches(role.get("actions", [])) and not matches(role.get("notActions", [])) for role in roles)
for action, role in needed.items():
    if not has(action):
        sys.exit(f"error: you have no right to {action} on {sys.argv[1]}; ask its owner for: az role assignment create "
                 f"--role \"{role}\" --assignee <you> --scope {sys.argv[1]}")
' "$scope" <<<"$permissions"
}

check_providers() {
  local provider state
  for provider in ContainerService ContainerRegistry Storage ManagedIdentity Insights Monitor AlertsManagement; do
    state=$(az provider show --namespace "Microsoft.$provider" --query registrationState --output tsv)
    [ "$state" = Registered ] || az provider register --namespace "Microsoft.$provider" --wait ||
      die "the provider Microsoft.$provider is $state and you may not register it; ask the owner of the subscription for:" \
        "az provider register --namespace Microsoft.$provider"
  done
}

usage() { # NAME: vCPUs that are still free of a quota of the region
  az vm list-usage --location "$LOCATION" --query "[?name.value=='$1'].[limit, currentValue]" --output tsv |
    { read -r limit used && echo $((limit - used)); } || echo 0
}

declare -A NEEDED=()

need_size() { # SIZE NODES SPOT: adds the vCPUs of nodes to the quotas that they use
  local size=$1 nodes=$2 spot=$3 family cores restricted
  read -r cores restricted family < <(az vm list-skus --location "$LOCATION" --size "$size" --all --output tsv --query \
    "[?name=='$size'].[capabilities[?name=='vCPUs'] | [0].value, length(restrictions[?type=='Location']), family]") ||
    die "Azure has no size $size in $LOCATION: choose another one, or another --location (az vm list-skus --size $size --all)"
  [ "$restricted" = 0 ] || die "$LOCATION refuses the size $size for your subscription: choose another --location, or" \
    "request access with a support ticket (az vm list-skus --location $LOCATION --size $size --all shows the restriction)"
  if [ "$spot" = true ]; then
    NEEDED[lowPriorityCores]=$((${NEEDED[lowPriorityCores]:-0} + cores * nodes))
  else
    NEEDED[$family]=$((${NEEDED[$family]:-0} + cores * nodes))
    NEEDED[cores]=$((${NEEDED[cores]:-0} + cores * nodes))
  fi
}

check_quota() {
  local existing quota free
  # Without a cluster there is no pool.
  existing=$(az aks nodepool list --resource-group "$GROUP" --cluster-name "$CLUSTER" --query '[].name' --output tsv \
    2>/dev/null) || existing=
  existing=" ${existing//$'\n'/ } "
  [[ $existing == *" system "* ]] || need_size Standard_D4s_v5 1 false
  [[ $existing == *" cpunp "* ]] || need_size "$CPU_SIZE" "$CPU_NODES" false
  [ "$GPU" = false ] || [[ $existing == *" gpunp "* ]] || need_size "$GPU_SIZE" "$GPU_NODES" false
  [ "$SPOT" = false ] || [[ $existing == *" gpuspot "* ]] || need_size "$GPU_SIZE" "$GPU_NODES" true
  for quota in "${!NEEDED[@]}"; do
    free=$(usage "$quota")
    [ "$free" -ge "${NEEDED[$quota]}" ] ||
      die "the quota $quota of $LOCATION has $free free vCPUs, and the pools need ${NEEDED[$quota]}: request more" \
        "(https://aka.ms/AzureQuota; cores is 'Total Regional vCPUs'), or take fewer nodes with --gpu-nodes"
  done
}

# --- what is created -----------------------------------------------------------------------------------------------

deploy() {
  local user emails name state
  user=$(az ad signed-in-user show --query id --output tsv 2>/dev/null || true) # empty for a service principal
  emails='[]' && [ -z "$EMAIL" ] || emails="[\"$EMAIL\"]"
  local parameters=(
    clusterName="$CLUSTER" jobNamespace="$NAMESPACE" userObjectId="$user" cpuSize="$CPU_SIZE" maxCpuNodes="$CPU_NODES"
    withGpuPool="$GPU" gpuSize="$GPU_SIZE" maxGpuNodes="$GPU_NODES" withSpotPool="$SPOT" withMonitoring="$MONITORING"
    budgetAmount="$BUDGET" budgetEmails="$emails"
  )
  # A deployment sets the number of nodes of its pools: with the same template and parameters it is not repeated.
  name=horovodjob-$({ cat manifests/aks/*.bicep manifests/aks/alerts.json && echo "${parameters[@]}"; } |
    python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:12])')
  if [ "$WHAT_IF" = true ]; then
    az deployment group what-if --resource-group "$GROUP" --template-file manifests/aks/main.bicep \
      --parameters "${parameters[@]}"
    exit
  fi
  state=$(az deployment group show --resource-group "$GROUP" --name "$name" --query properties.provisioningState \
    --output tsv 2>/dev/null || true)
  [ "$state" = Succeeded ] || az deployment group create --resource-group "$GROUP" --name "$name" --output none \
    --template-file manifests/aks/main.bicep --parameters "${parameters[@]}" ||
    die "the deployment failed; its first error is above. Correct it and run this command again"
  output() { az deployment group show --resource-group "$GROUP" --name "$name" --query "properties.outputs.$1.value" --output tsv; }
  REGISTRY=$(output registry) SERVER=$(output registryServer) ACCOUNT=$(output storageAccount) SHARE=$(output share)
  CLIENT_ID=$(output clientId) NODE_GROUP=$(output nodeResourceGroup)
}

build_images() {
  local role context roles=(operator trainer)
  [ "$GPU" = false ] && [ "$SPOT" = false ] || roles+=(trainer-gpu)
  context=$(mktemp -d)
  # Without .dockerignore, which would leave out the task and the Dockerfile.
  tar --create --exclude=__pycache__ pyproject.toml uv.lock LICENSE Dockerfile operator trainer images |
    tar --extract --directory "$context"
  cp manifests/aks/image.yaml "$context"
  for role in "${roles[@]}"; do
    if az acr repository show --name "$REGISTRY" --image "horovodjob/$role:$VERSION" --output none 2>/dev/null; then
      continue
    fi
    az acr run --registry "$REGISTRY" --file image.yaml --set "target=$role" --set "tag=$VERSION" --timeout 10800 \
      "$context" || { rm -r "$context" && die "the image $role was not built; the log above has the reason. Run this command again"; }
  done
  rm -r "$context"
}

wait_for_definition() { # NAME of a CustomResourceDefinition that an add-on installs
  local tries=60
  until kubectl get customresourcedefinition "$1" >/dev/null 2>&1; do
    ((tries--)) || die "the metrics add-on has not installed $1 in ten minutes: run this command again, or with --no-monitoring"
    sleep 10
  done
}

install_operator() {
  local values=(--set "image.registry=$SERVER")
  az aks get-credentials --resource-group "$GROUP" --name "$CLUSTER" --overwrite-existing --output none
  [ "$GPU" = false ] && [ "$SPOT" = false ] || kubectl apply --filename manifests/aks/nvidia-device-plugin.yaml
  [ "$SPOT" = false ] || kubectl apply --filename manifests/aks/spot-first.yaml
  if [ "$MONITORING" = true ]; then
    wait_for_definition podmonitors.azmonitoring.coreos.com
    values+=(--set metrics.podMonitor.enabled=true --set metrics.monitorApiVersion=azmonitoring.coreos.com/v1)
  fi
  helm upgrade --install horovodjob-operator charts/horovodjob-operator --namespace horovodjob-system \
    --create-namespace --wait "${values[@]}"
  [ "$MONITORING" = false ] || kubectl get configmap ama-metrics-settings-configmap --namespace kube-system >/dev/null 2>&1 ||
    kubectl apply --filename manifests/aks/metrics-secrets.yaml
  kubectl create namespace "$NAMESPACE" --dry-run=client --output yaml | kubectl apply --filename -
  kubectl label namespace "$NAMESPACE" pod-security.kubernetes.io/enforce=restricted --overwrite
  kubectl create serviceaccount trainer --namespace "$NAMESPACE" --dry-run=client --output yaml | kubectl apply --filename -
}

job() {
  cat <<YAML
apiVersion: horovodjob.dev/v1beta1
kind: HorovodJob
metadata: {name: digits, namespace: $NAMESPACE}
spec:
  image: $SERVER/horovodjob/trainer:$VERSION
  serviceAccountName: trainer
  pool: cpunp
  command: [python, -m, horovodjob_trainer, --dataset, digits, --dir, \$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/digits]
  worker: {replicas: 2, gpus: 0, resources: {requests: {cpu: 500m, memory: 1Gi}}}
  azureFiles: [{name: share, account: $ACCOUNT, share: $SHARE, clientID: $CLIENT_ID}]
  logs: {pathPrefix: \$(AZ_BATCHAI_JOB_MOUNT_ROOT)/share/logs}
YAML
}

train() {
  job >"$WORK/job.yaml"
  hvj doctor --workspace "$NAMESPACE" --config-file "$WORK/job.yaml" ||
    die "something blocks a job; the lines above have the commands. Run them, and this command again"
  if ! kubectl get hvj digits --namespace "$NAMESPACE" >/dev/null 2>&1; then
    hvj job create --workspace "$NAMESPACE" --config-file "$WORK/job.yaml"
  fi
  hvj job wait --workspace "$NAMESPACE" --name digits --timeout 3600
  hvj job plot --workspace "$NAMESPACE" digits
}

show_cost() {
  local group cost
  for group in "$GROUP" "$NODE_GROUP"; do
    cost=$(az rest --method post --url "/subscriptions/$SUBSCRIPTION/resourceGroups/$group/providers/Microsoft.CostManagement/query?api-version=2023-11-01" \
      --body '{"type": "ActualCost", "timeframe": "MonthToDate", "dataset": {"granularity": "None", "aggregation": {"cost": {"name": "Cost", "function": "Sum"}}}}' \
      --query properties.rows --output tsv 2>/dev/null) || cost=
    printf '%s: %s\n' "$group" "${cost:-no cost is known yet}"
  done
  echo "Costs appear in Azure up to a day later. manifests/aks/down.sh --group $GROUP ends them."
}

step "tools and sign-in"
check_tools
SUBSCRIPTION=$(az account show --query id --output tsv 2>/dev/null) || die "you are not signed in: run az login"
WORK=$(mktemp -d)
trap 'rm -r "$WORK"' EXIT
SCOPE=/subscriptions/$SUBSCRIPTION
[ "$(az group exists --name "$GROUP")" = false ] || SCOPE+=/resourceGroups/$GROUP
step "rights on $SCOPE, providers and quota of $LOCATION"
check_rights "$SCOPE"
check_providers
check_quota
[ "$CHECK" = false ] || { echo "nothing is missing" && exit; }
step "cluster, registry, storage: about ten minutes"
# The tag says that down.sh may delete the group.
[[ $SCOPE == */resourceGroups/* ]] || az group create --name "$GROUP" --location "$LOCATION" --tags horovodjob=up --output none
deploy
step "images: an hour the first time"
build_images
step "operator"
install_operator
step "the job digits"
train
step "cost of this month"
show_cost

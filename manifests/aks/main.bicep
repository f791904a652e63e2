// Creates the objects of docs/aks.md: an AKS cluster, a GPU pool that grows from zero, a storage account with a share.
//
//   az group create --name batchai.horovod --location eastus
//   az deployment group create --resource-group batchai.horovod --template-file manifests/aks/main.bicep

@description('Region. GPU sizes and quota differ by region: az vm list-skus --location eastus --size Standard_NC')
param location string = resourceGroup().location

@description('Name of the AKS cluster.')
param clusterName string = 'horovod'

@description('Name of the storage account, unique in all of Azure.')
@minLength(3)
@maxLength(24)
param storageAccountName string = 'horovod${uniqueString(resourceGroup().id)}'

@description('Name of the share on Azure Files.')
param shareName string = 'myshare'

@description('Name of the GPU pool, the value of spec.pool of a job.')
@maxLength(12)
param poolName string = 'gpunp'

@description('Size of the GPU nodes: Standard_NC4as_T4_v3, Standard_NC24ads_A100_v4, Standard_NC40ads_H100_v5, ...')
param gpuSize string = 'Standard_NC4as_T4_v3'

@description('Greatest number of GPU nodes. The least is 0.')
@minValue(1)
@maxValue(1000)
param maxGpuNodes int = 4

@description('Whether there is a second GPU pool of spot nodes, for jobs with spec.spot.')
param withSpotPool bool = false

resource cluster 'Microsoft.ContainerService/managedClusters@2025-05-01' = {
  name: clusterName
  location: location
  sku: {
    name: 'Base'
    tier: 'Free'
  }
  identity: {
    type: 'SystemAssigned'
  }
  properties: {
    dnsPrefix: clusterName
    oidcIssuerProfile: {
      enabled: true
    }
    securityProfile: {
      workloadIdentity: {
        enabled: true
      }
    }
    storageProfile: {
      fileCSIDriver: {
        enabled: true
      }
    }
    networkProfile: {
      networkPlugin: 'azure'
      networkPluginMode: 'overlay'
      networkDataplane: 'cilium'
      networkPolicy: 'cilium'
    }
    agentPoolProfiles: [
      {
        name: 'system'
        mode: 'System'
        count: 1
        vmSize: 'Standard_D4s_v5'
        osType: 'Linux'
        type: 'VirtualMachineScaleSets'
      }
    ]
  }
}

resource gpuPool 'Microsoft.ContainerService/managedClusters/agentPools@2025-05-01' = {
  parent: cluster
  name: poolName
  properties: {
    mode: 'User'
    type: 'VirtualMachineScaleSets'
    osType: 'Linux'
    vmSize: gpuSize
    count: 0
    enableAutoScaling: true
    minCount: 0
    maxCount: maxGpuNodes
    nodeTaints: [
      'sku=gpu:NoSchedule'
    ]
  }
}

resource spotPool 'Microsoft.ContainerService/managedClusters/agentPools@2025-05-01' = if (withSpotPool) {
  parent: cluster
  name: 'gpuspot'
  properties: {
    mode: 'User'
    type: 'VirtualMachineScaleSets'
    osType: 'Linux'
    vmSize: gpuSize
    count: 0
    enableAutoScaling: true
    minCount: 0
    maxCount: maxGpuNodes
    scaleSetPriority: 'Spot'
    scaleSetEvictionPolicy: 'Delete'
    spotMaxPrice: -1
    nodeTaints: [
      'sku=gpu:NoSchedule'
      'kubernetes.azure.com/scalesetpriority=spot:NoSchedule'
    ]
  }
}

resource storage 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: storageAccountName
  location: location
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS'
  }
  properties: {
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    allowBlobPublicAccess: false
  }
}

resource files 'Microsoft.Storage/storageAccounts/fileServices@2023-05-01' = {
  parent: storage
  name: 'default'
}

resource share 'Microsoft.Storage/storageAccounts/fileServices/shares@2023-05-01' = {
  parent: files
  name: shareName
  properties: {
    accessTier: 'TransactionOptimized'
    shareQuota: 1024
  }
}

output clusterName string = cluster.name
output oidcIssuer string = cluster.properties.oidcIssuerProfile.issuerURL
output storageAccount string = storage.name
output share string = share.name

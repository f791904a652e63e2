// Creates the objects of docs/aks.md: an AKS cluster with pools that grow from zero, a registry, a storage account with a
// share, an identity that mounts it without a key, metrics and alerts. manifests/aks/up.sh deploys it.
//
//   az group create --name batchai.horovod --location eastus
//   az deployment group create --resource-group batchai.horovod --template-file manifests/aks/main.bicep

@description('Region. GPU sizes and quota differ by region: az vm list-skus --location eastus --size Standard_NC --all')
param location string = resourceGroup().location

@description('Name of the AKS cluster.')
param clusterName string = 'horovod'

@description('Version of Kubernetes. From 1.36, the CSI driver of Azure Files mounts inline volumes with a managed identity.')
param kubernetesVersion string = '1.36'

@description('Name of the container registry, unique in all of Azure.')
@minLength(5)
@maxLength(50)
param registryName string = 'horovod${uniqueString(resourceGroup().id)}'

@description('Name of the storage account, unique in all of Azure.')
@minLength(3)
@maxLength(24)
param storageAccountName string = 'horovod${uniqueString(resourceGroup().id)}'

@description('Name of the share on Azure Files.')
param shareName string = 'myshare'

@description('Whether the account also accepts keys. Without them, pods mount the share with the identity trainer.')
param allowKeys bool = false

@description('Namespace of the jobs, whose service account trainer may use the identity.')
param jobNamespace string = 'training'

@description('Object ID of the user who runs hvj, for access to the files of the share; empty: nobody.')
param userObjectId string = ''

@description('Whether there is a pool for jobs without GPUs.')
param withCpuPool bool = true

@description('Size of the nodes of the CPU pool.')
param cpuSize string = 'Standard_D4s_v5'

@description('Greatest number of nodes of the CPU pool. The least is 0.')
@minValue(1)
@maxValue(1000)
param maxCpuNodes int = 2

@description('Whether there is a GPU pool.')
param withGpuPool bool = false

@description('Name of the GPU pool, the value of spec.pool of a job.')
@maxLength(12)
param poolName string = 'gpunp'

@description('Size of the GPU nodes: Standard_NC4as_T4_v3, Standard_NC24ads_A100_v4, Standard_NC40ads_H100_v5, ...')
param gpuSize string = 'Standard_NC4as_T4_v3'

@description('Greatest number of GPU nodes. The least is 0.')
@minValue(1)
@maxValue(1000)
param maxGpuNodes int = 4

@description('Whether there is a GPU pool of spot nodes, for jobs with spec.spot.')
param withSpotPool bool = false

@description('Whether Azure Monitor gets the metrics, with alert rules.')
param withMonitoring bool = true

@description('Whether there is a Grafana of Azure, which has a monthly price.')
param withGrafana bool = false

@description('IDs of the action groups that alerts notify.')
param actionGroups array = []

@description('Monthly budget in the currency of the subscription; needs budgetEmails.')
@minValue(1)
param budgetAmount int = 500

@description('Addresses that get a mail at 80 % of the budget, and when 100 % are forecast; empty: no budget.')
param budgetEmails array = []

@description('First month of the budget.')
param budgetStart string = utcNow('yyyy-MM-01')

var roles = {
  acrPull: '7f951dda-4ed3-4680-a7ca-43fe172d538d'
  fileDataPrivilegedContributor: '69566ab7-960f-475b-8e7c-b3118f30c6bd'
  fileDataSmbMiAdmin: 'a235d3ee-5935-4cfb-8cc5-a3303ad5995e'
  monitoringDataReader: 'b0d8363b-8ddd-447d-831f-62ca05bff136'
}
// Without a window, AKS replaces node images and upgrades at any time, and the pods on the nodes end.
var windows = [
  'aksManagedNodeOSUpgradeSchedule'
  'aksManagedAutoUpgradeSchedule'
]

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
    kubernetesVersion: kubernetesVersion
    dnsPrefix: clusterName
    nodeResourceGroup: '${resourceGroup().name}-nodes'
    autoUpgradeProfile: {
      nodeOSUpgradeChannel: 'NodeImage'
      upgradeChannel: 'patch'
    }
    // Spot nodes first, by the ConfigMap in manifests/aks/spot-first.yaml.
    autoScalerProfile: {
      expander: 'priority'
    }
    azureMonitorProfile: {
      metrics: {
        enabled: withMonitoring
      }
    }
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

@batchSize(1)
resource maintenance 'Microsoft.ContainerService/managedClusters/maintenanceConfigurations@2025-05-01' = [
  for window in windows: {
    parent: cluster
    name: window
    properties: {
      maintenanceWindow: {
        schedule: {
          weekly: {
            intervalWeeks: 1
            dayOfWeek: 'Sunday'
          }
        }
        durationHours: 4
        utcOffset: '+00:00'
        startTime: '02:00'
      }
    }
  }
]

// AKS refuses an operation on a pool while another one is in progress, so each pool waits for the one before it.
resource cpuPool 'Microsoft.ContainerService/managedClusters/agentPools@2025-05-01' = if (withCpuPool) {
  parent: cluster
  name: 'cpunp'
  properties: {
    mode: 'User'
    type: 'VirtualMachineScaleSets'
    osType: 'Linux'
    vmSize: cpuSize
    count: 0
    enableAutoScaling: true
    minCount: 0
    maxCount: maxCpuNodes
  }
  dependsOn: [
    maintenance
  ]
}

resource gpuPool 'Microsoft.ContainerService/managedClusters/agentPools@2025-05-01' = if (withGpuPool) {
  parent: cluster
  name: poolName
  properties: {
    mode: 'User'
    type: 'VirtualMachineScaleSets'
    osType: 'Linux'
    osSKU: 'Ubuntu'
    vmSize: gpuSize
    count: 0
    enableAutoScaling: true
    minCount: 0
    maxCount: maxGpuNodes
    nodeTaints: [
      'sku=gpu:NoSchedule'
    ]
  }
  dependsOn: [
    cpuPool
  ]
}

resource spotPool 'Microsoft.ContainerService/managedClusters/agentPools@2025-05-01' = if (withSpotPool) {
  parent: cluster
  name: 'gpuspot'
  properties: {
    mode: 'User'
    type: 'VirtualMachineScaleSets'
    osType: 'Linux'
    osSKU: 'Ubuntu'
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
  dependsOn: [
    gpuPool
  ]
}

resource registry 'Microsoft.ContainerRegistry/registries@2023-07-01' = {
  name: registryName
  location: location
  sku: {
    name: 'Basic'
  }
  properties: {
    adminUserEnabled: false
  }
}

resource pull 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, cluster.id, roles.acrPull)
  scope: registry
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.acrPull)
    principalId: cluster.properties.identityProfile.kubeletidentity.objectId
    principalType: 'ServicePrincipal'
  }
}

resource storage 'Microsoft.Storage/storageAccounts@2025-06-01' = {
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
    allowSharedKeyAccess: allowKeys
    defaultToOAuthAuthentication: true
    azureFilesIdentityBasedAuthentication: {
      directoryServiceOptions: 'None'
      smbOAuthSettings: {
        isSmbOAuthEnabled: true
      }
    }
  }
}

resource files 'Microsoft.Storage/storageAccounts/fileServices@2025-06-01' = {
  parent: storage
  name: 'default'
}

resource share 'Microsoft.Storage/storageAccounts/fileServices/shares@2025-06-01' = {
  parent: files
  name: shareName
  properties: {
    accessTier: 'TransactionOptimized'
    shareQuota: 1024
  }
}

resource trainer 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: 'trainer'
  location: location
}

resource federation 'Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials@2023-01-31' = {
  parent: trainer
  name: 'trainer'
  properties: {
    issuer: cluster.properties.oidcIssuerProfile.issuerURL
    subject: 'system:serviceaccount:${jobNamespace}:trainer'
    audiences: [
      'api://AzureADTokenExchange'
    ]
  }
}

resource mount 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storage.id, trainer.id, roles.fileDataSmbMiAdmin)
  scope: storage
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.fileDataSmbMiAdmin)
    principalId: trainer.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

resource userFiles 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(userObjectId)) {
  name: guid(storage.id, userObjectId, roles.fileDataPrivilegedContributor)
  scope: storage
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles.fileDataPrivilegedContributor
    )
    principalId: userObjectId
    principalType: 'User'
  }
}

resource workspace 'Microsoft.Monitor/accounts@2023-04-03' = if (withMonitoring) {
  name: '${clusterName}-metrics'
  location: location
}

resource endpoint 'Microsoft.Insights/dataCollectionEndpoints@2022-06-01' = if (withMonitoring) {
  name: take('MSProm-${location}-${clusterName}', 44)
  location: location
  kind: 'Linux'
  properties: {}
}

resource collection 'Microsoft.Insights/dataCollectionRules@2022-06-01' = if (withMonitoring) {
  name: take('MSProm-${location}-${clusterName}', 44)
  location: location
  kind: 'Linux'
  properties: {
    dataCollectionEndpointId: endpoint.id
    dataSources: {
      prometheusForwarder: [
        {
          name: 'PrometheusDataSource'
          streams: [
            'Microsoft-PrometheusMetrics'
          ]
          labelIncludeFilter: {}
        }
      ]
    }
    destinations: {
      monitoringAccounts: [
        {
          name: 'MonitoringAccount1'
          accountResourceId: workspace.id
        }
      ]
    }
    dataFlows: [
      {
        streams: [
          'Microsoft-PrometheusMetrics'
        ]
        destinations: [
          'MonitoringAccount1'
        ]
      }
    ]
  }
}

resource association 'Microsoft.Insights/dataCollectionRuleAssociations@2022-06-01' = if (withMonitoring) {
  name: take('MSProm-${location}-${clusterName}', 44)
  scope: cluster
  properties: {
    dataCollectionRuleId: collection.id
  }
}

module alerts 'alerts.json' = if (withMonitoring) {
  name: '${clusterName}-alerts'
  params: {
    workspace: workspace.id
    cluster: cluster.id
    actionGroups: actionGroups
  }
}

resource grafana 'Microsoft.Dashboard/grafana@2023-09-01' = if (withMonitoring && withGrafana) {
  name: take('grafana-${uniqueString(resourceGroup().id)}', 23)
  location: location
  sku: {
    name: 'Standard'
  }
  identity: {
    type: 'SystemAssigned'
  }
  properties: {
    grafanaIntegrations: {
      azureMonitorWorkspaceIntegrations: [
        {
          azureMonitorWorkspaceResourceId: workspace.id
        }
      ]
    }
  }
}

resource grafanaReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (withMonitoring && withGrafana) {
  name: guid(resourceGroup().id, clusterName, roles.monitoringDataReader)
  scope: workspace
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.monitoringDataReader)
    principalId: grafana!.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

module budget 'budget.bicep' = if (!empty(budgetEmails)) {
  name: '${clusterName}-budget'
  scope: subscription()
  params: {
    name: clusterName
    amount: budgetAmount
    emails: budgetEmails
    start: budgetStart
    groups: [
      resourceGroup().name
      '${resourceGroup().name}-nodes'
    ]
  }
}

output clusterName string = cluster.name
output nodeResourceGroup string = cluster.properties.nodeResourceGroup
output oidcIssuer string = cluster.properties.oidcIssuerProfile.issuerURL
output registry string = registry.name
output registryServer string = registry.properties.loginServer
output storageAccount string = storage.name
output share string = share.name
output clientId string = trainer.properties.clientId

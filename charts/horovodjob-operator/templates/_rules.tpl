{{- /* What the operator does in a namespace: it cannot read a Secret. */ -}}
{{- define "horovodjob-operator.rules" -}}
- apiGroups: [horovodjob.dev]
  resources: [horovodjobs]
  verbs: [list, watch, delete] # delete: runPolicy.ttlSecondsAfterFinished
- apiGroups: [horovodjob.dev]
  resources: [horovodjobs/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# The admission policy demands it for reserved names of Secrets, and for the label of pods with the UID of their job.
- apiGroups: [horovodjob.dev]
  resources: [horovodjobs/secrets, horovodjobs/pods]
  verbs: [create]
# Only for jobs with network.service; delete is for a suspended job that is changed to have none.
- apiGroups: [""]
  resources: [services]
  verbs: [create, get, delete]
# For all jobs except those with network.isolate false; delete is for a suspended job that is changed to have none.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, get, delete]
# Only for jobs with scheduling.gang; get is for a name that is in use.
- apiGroups: [scheduling.k8s.io, scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [create, get, deletecollection]
# Only while jobs wait for room in a ResourceQuota: which of them can start.
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# Only events have the reason why a volume cannot be mounted, and whether an autoscaler adds nodes.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}

{{- /* What has no namespace: the authentication of progress reports, the authorization of those who read metrics, and namespaces. */ -}}
{{- define "horovodjob-operator.clusterRules" -}}
{{- if or .Values.operator.progress .Values.metrics.authorization -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}
{{- if .Values.metrics.authorization }}
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- if .Values.rbac.readNodes }}
# One read of each node of an attempt that ends or stalls.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}
{{- if .Values.watchNamespaceSelector }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
{{- end }}
{{- end }}

{{- /* What the operator does in a namespace for jobs with a queue of Kueue. */ -}}
{{- define "horovodjob-operator.queueRules" -}}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, patch, delete] # get: a name that is in use, and the Workloads of MultiKueue
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
# The position of a job in its queue.
- apiGroups: [visibility.kueue.x-k8s.io]
  resources: [localqueues/pendingworkloads]
  verbs: [get]
{{- end }}

{{- /* What has no namespace: the nodes that a queue admits a job to, and its priority. */ -}}
{{- define "horovodjob-operator.queueClusterRules" -}}
- apiGroups: [kueue.x-k8s.io]
  resources: [resourceflavors, workloadpriorityclasses]
  verbs: [get]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [get]
{{- end }}

{{- /* Whether the operator has these rights: "true", or empty. */ -}}
{{- define "horovodjob-operator.hasKueue" -}}
{{- $enabled := toString .Values.kueue.enabled }}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2")) }}true{{ end }}
{{- end }}

{{- /* A binding of a service account, by default the operator's; takes root, kind (Role or ClusterRole), role, account, and a Role's namespace. */ -}}
{{- define "horovodjob-operator.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .bindingKind | default .kind }}Binding
metadata:
  {{- include "horovodjob-operator.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ default .name .role | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ default (include "horovodjob-operator.serviceAccountName" .root) .account | quote }}
    namespace: {{ .root.Release.Namespace | quote }}
{{- end }}

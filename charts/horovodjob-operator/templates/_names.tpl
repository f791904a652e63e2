{{- define "horovodjob-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* At most 46 characters, so that a suffix fits into a label's 63. Names of Services have no dots and begin with a letter. */ -}}
{{- define "horovodjob-operator.fullname" -}}
{{- $name := include "horovodjob-operator.name" . }}
{{- $release := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- $fullname := default $release .Values.fullnameOverride | replace "." "-" | trunc 46 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]" $fullname) }}
{{- fail (printf "the objects would have the name %s, and the name of a Service begins with a letter: set fullnameOverride" $fullname) }}
{{- end }}
{{- $fullname }}
{{- end }}

{{- /* `namespace` where the operator has Roles instead of a ClusterRole, else `cluster`. */ -}}
{{- define "horovodjob-operator.scope" -}}
{{- if and (eq (default "" .Values.rbac.scope) "namespace") (not .Values.watchNamespaces) }}
{{- fail "rbac.scope is namespace and watchNamespaces is empty: name the namespaces that get a Role" }}
{{- end }}
{{- if and .Values.watchNamespaces .Values.watchNamespaceSelector }}
{{- fail "watchNamespaces and watchNamespaceSelector are both set: name the namespaces, or select them by label" }}
{{- end }}
{{- default (empty .Values.watchNamespaces | ternary "cluster" "namespace") .Values.rbac.scope }}
{{- end }}

{{- /* Of cluster-scoped objects. Operators with namespaces of their own can have one release name in several namespaces. */ -}}
{{- define "horovodjob-operator.clusterName" -}}
{{- $name := include "horovodjob-operator.fullname" . }}
{{- or .Values.watchNamespaces .Values.watchNamespaceSelector | empty | ternary $name (printf "%s:%s" .Release.Namespace $name) }}
{{- end }}

{{- define "horovodjob-operator.selector" -}}
app.kubernetes.io/name: {{ include "horovodjob-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* Of the dashboard's pods: the selector of the operator's Services and policies must not match them. */ -}}
{{- define "horovodjob-operator.dashboardSelector" -}}
app.kubernetes.io/name: {{ printf "%s-dashboard" (include "horovodjob-operator.name" .) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "horovodjob-operator.labels" -}}
{{ include "horovodjob-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- /* The metadata of an object; takes root, name, and optionally namespace, labels and annotations. */ -}}
{{- define "horovodjob-operator.metadata" -}}
{{- $root := .root -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- $own := include "horovodjob-operator.labels" $root | fromYaml }}
  {{- merge $own (default dict .labels) (default dict $root.Values.commonLabels) | toYaml | nindent 2 }}
{{- with merge (dict) (default dict .annotations) (default dict $root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "horovodjob-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "horovodjob-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "horovodjob-operator.image" -}}
{{- include "horovodjob-operator.imageOf" (list . .Values.image) }}
{{- end }}

{{- /* Takes root and an object with repository, tag and digest. */ -}}
{{- define "horovodjob-operator.imageOf" -}}
{{- $root := first . }}
{{- with last . }}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $root.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "horovodjob-operator.testImage" -}}
{{- .Values.tests.image | default (include "horovodjob-operator.trainerImage" (list . "trainer")) }}
{{- end }}

{{- /* An image of the trainer in the registry of the operator's image; the arguments are the root and its name. */ -}}
{{- define "horovodjob-operator.trainerImage" -}}
{{- $root := first . }}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}horovodjob/{{ last . }}:{{ $root.Chart.AppVersion }}
{{- end }}

{{- /* The job defaults that are set, as JSON; empty where there are none. An image that is null is none. */ -}}
{{- define "horovodjob-operator.jobDefaults" -}}
{{- $set := dict }}
{{- $defaults := default dict .Values.jobDefaults }}
{{- if and (hasKey $defaults "image") (kindIs "string" $defaults.image) (empty $defaults.image) }}
{{- $_ := set $set "image" (include "horovodjob-operator.trainerImage" (list . "trainer")) }}
{{- $_ := set $set "gpuImage" (include "horovodjob-operator.trainerImage" (list . "trainer-gpu")) }}
{{- end }}
{{- range $name, $value := $defaults }}
{{- if $value }}
{{- $_ := set $set $name $value }}
{{- end }}
{{- end }}
{{- if $set }}
{{- toJson $set }}
{{- end }}
{{- end }}

{{- define "horovodjob-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* At most 46 characters, so that a suffix fits into a label's 63. */ -}}
{{- define "horovodjob-operator.fullname" -}}
{{- $name := include "horovodjob-operator.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 46 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 46 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* `namespace` where the operator has Roles instead of a ClusterRole, else `cluster`. */ -}}
{{- define "horovodjob-operator.scope" -}}
{{- if and (eq .Values.rbac.scope "namespace") (not .Values.watchNamespaces) }}
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

{{- define "horovodjob-operator.labels" -}}
{{ include "horovodjob-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The metadata of an object; takes root, name, and optionally namespace, labels and annotations. */ -}}
{{- define "horovodjob-operator.metadata" -}}
{{- $root := .root -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "horovodjob-operator.labels" $root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default dict .annotations) $root.Values.commonAnnotations }}
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
{{- $image := .Values.image }}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "horovodjob-operator.testImage" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ default (printf "horovodjob/trainer:%s" .Chart.AppVersion) .Values.tests.image }}
{{- end }}

{{- /* The job defaults that are set, as JSON; empty where there are none. */ -}}
{{- define "horovodjob-operator.jobDefaults" -}}
{{- $set := dict }}
{{- range $name, $value := .Values.jobDefaults }}
{{- if $value }}
{{- $_ := set $set $name $value }}
{{- end }}
{{- end }}
{{- if $set }}
{{- toJson $set }}
{{- end }}
{{- end }}

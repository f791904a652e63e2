{{- /* The settings of the operator: variables HOROVODJOB_OPERATOR_*. */ -}}
{{- define "horovodjob-operator.environment" -}}
{{- $name := include "horovodjob-operator.fullname" . -}}
{{- with .Values.operator -}}
- name: HOROVODJOB_OPERATOR_LOG_LEVEL
  value: {{ .logLevel }}
- name: HOROVODJOB_OPERATOR_RESYNC_SECONDS
  value: {{ .resyncSeconds | quote }}
- name: HOROVODJOB_OPERATOR_WATCH_TIMEOUT_SECONDS
  value: {{ .watchTimeoutSeconds | quote }}
- name: HOROVODJOB_OPERATOR_CONCURRENT_WRITES
  value: {{ .concurrentWrites | quote }}
{{- if .progress }}
- name: HOROVODJOB_OPERATOR_PROGRESS_URL
  value: http://{{ $name }}-progress.{{ $.Release.Namespace }}.svc:8081/progress
{{- end }}
{{- with .preflight }}
- name: HOROVODJOB_OPERATOR_PREFLIGHT
  value: {{ toJson . | quote }}
{{- end }}
{{- end }}
- name: HOROVODJOB_OPERATOR_IDENTITY
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if .Values.leaderElection.enabled }}
- name: HOROVODJOB_OPERATOR_LEASE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: HOROVODJOB_OPERATOR_LEASE_NAME
  value: {{ include "horovodjob-operator.leaseName" . | quote }}
{{- end }}
{{- if .Values.metrics.authorization }}
- name: HOROVODJOB_OPERATOR_METRICS_AUTHORIZATION
  value: "1"
{{- end }}
{{- if include "horovodjob-operator.hasTls" . }}
- name: HOROVODJOB_OPERATOR_METRICS_TLS_PORT
  value: "8443"
{{- end }}
{{- if include "horovodjob-operator.tlsSecret" . }}
- name: HOROVODJOB_OPERATOR_METRICS_TLS_DIRECTORY
  value: /etc/horovodjob/metrics-tls
{{- end }}
{{- if .Values.rbac.readNodes }}
- name: HOROVODJOB_OPERATOR_READ_NODES
  value: "1"
{{- end }}
{{- with include "horovodjob-operator.jobDefaults" . }}
- name: HOROVODJOB_OPERATOR_JOB_DEFAULTS
  value: {{ . | quote }}
{{- end }}
{{- with .Values.watchNamespaceSelector }}
- name: HOROVODJOB_OPERATOR_NAMESPACE_SELECTOR
  value: {{ . | quote }}
{{- end }}
{{- with .Values.watchNamespaces }}
- name: HOROVODJOB_OPERATOR_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{- define "horovodjob-operator.leaseName" -}}
{{- default (include "horovodjob-operator.fullname" .) .Values.leaderElection.leaseName }}
{{- end }}

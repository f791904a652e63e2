{{- /* Whether the metrics are served over HTTPS: "true", or empty. */ -}}
{{- define "horovodjob-operator.hasTls" -}}
{{- with .Values.metrics }}
{{- if and .authorization .tls.enabled }}true
{{- else if or .tls.secretName .tls.certManager.enabled }}
{{- fail "metrics.tls has a Secret or a Certificate, and the metrics are served over plain HTTP: set metrics.authorization and metrics.tls.enabled, or remove it" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The Secret with the certificate of the metrics; empty: a self-signed one. */ -}}
{{- define "horovodjob-operator.tlsSecret" -}}
{{- if include "horovodjob-operator.hasTls" . }}
{{- with .Values.metrics.tls }}
{{- .secretName | default (.certManager.enabled | ternary (printf "%s-metrics-tls" (include "horovodjob-operator.fullname" $)) "") }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A name in the certificate of the metrics: that of their Service. */ -}}
{{- define "horovodjob-operator.tlsName" -}}
{{- printf "%s-metrics.%s.svc" (include "horovodjob-operator.fullname" .) .Release.Namespace }}
{{- end }}

{{- /* The name of the pods' port with the metrics. */ -}}
{{- define "horovodjob-operator.metricsPort" -}}
{{- include "horovodjob-operator.hasTls" . | empty | ternary "http" "metrics" }}
{{- end }}

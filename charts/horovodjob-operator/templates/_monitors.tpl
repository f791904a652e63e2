{{- /* The endpoint of a monitor; takes root and monitor. The label `namespace` of a job's series is the job's, not the operator's. */ -}}
{{- define "horovodjob-operator.endpoint" -}}
{{- $endpoint := dict "port" (include "horovodjob-operator.metricsPort" .root) "interval" .monitor.interval "honorLabels" true }}
{{- if include "horovodjob-operator.hasTls" .root }}
{{- $tls := dict "insecureSkipVerify" true }}
{{- with include "horovodjob-operator.tlsSecret" .root }}
{{- $tls = dict "ca" (dict "secret" (dict "name" . "key" "ca.crt")) "serverName" (include "horovodjob-operator.tlsName" $.root) }}
{{- end }}
{{- $_ := merge $endpoint (dict "scheme" "https" "tlsConfig" (default $tls .monitor.endpoint.tlsConfig)) }}
{{- end }}
{{- if include "horovodjob-operator.createsMetricsReader" .root }}
{{- $credentials := dict "name" (printf "%s-metrics-reader" (include "horovodjob-operator.fullname" .root)) "key" "token" }}
{{- $_ := set $endpoint "authorization" (dict "credentials" $credentials) }}
{{- end }}
{{- toYaml (merge (dict) .monitor.endpoint $endpoint) }}
{{- end }}

{{- /* Azure's managed Prometheus drops series of monitors without these limits. */ -}}
{{- define "horovodjob-operator.labelLimits" -}}
{{- if hasPrefix "azmonitoring." .Values.metrics.monitorApiVersion -}}
labelLimit: 63
labelNameLengthLimit: 511
labelValueLengthLimit: 1023
{{- end }}
{{- end }}

{{- /* Whether the chart creates a service account that may read the metrics, for its monitors; empty: no. */ -}}
{{- define "horovodjob-operator.createsMetricsReader" -}}
{{- with .Values.metrics }}
{{- if and $.Values.rbac.create .authorization .reader.create (or .serviceMonitor.enabled .podMonitor.enabled) -}}
true
{{- end }}
{{- end }}
{{- end }}

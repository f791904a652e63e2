{{- /* The endpoint of a monitor; takes root, monitor and, for a ServiceMonitor, job. The label `namespace` of a job's series is the job's, not the operator's. */ -}}
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
{{- $endpoint = merge (dict) .monitor.endpoint $endpoint }}
{{- with .job }}
{{- $_ := set $endpoint "relabelings" (concat (list (dict "targetLabel" "job" "replacement" .)) (default list $endpoint.relabelings)) }}
{{- end }}
{{- toYaml $endpoint }}
{{- end }}

{{- /* The label `job` of all series of this operator: Prometheus' operator sets it for a PodMonitor. */ -}}
{{- define "horovodjob-operator.metricsJob" -}}
{{ .Release.Namespace }}/{{ include "horovodjob-operator.fullname" . }}
{{- end }}

{{- /* The groups of alerting rules, whose words in angle brackets are matchers, labels and thresholds. */ -}}
{{- define "horovodjob-operator.alerts" -}}
{{- $values := .Values.metrics.prometheusRule }}
{{- $clusters := list }}
{{- $labels := "" }}
{{- range $label, $value := $values.clusterLabels }}
{{- $labels = printf "%s%s, " $labels $label }}
{{- if $value }}{{ $clusters = append $clusters (printf "%s=%q" $label $value) }}{{ end }}
{{- end }}
{{- $job := printf "job=%q" (include "horovodjob-operator.metricsJob" .) }}
{{- $operator := append $clusters (default $job $values.selector) | join ", " }}
{{- $deployment := printf "namespace=%q, deployment=%q" .Release.Namespace (include "horovodjob-operator.fullname" .) }}
{{- $words := dict "operator" $operator "deployment" (append $clusters $deployment | join ", ") "cluster" $labels "nodes" (join ", " $clusters) }}
{{- $_ := set $words "runbookUrlPrefix" $values.runbookUrlPrefix }}
{{- $groups := regexSplit "(?m)^    - name: " (.Files.Get "files/alerts.yaml") -1 }}
{{- $own := list }}
{{- range $index, $team := $values.namespaceThresholds }}
{{- $own = concat $own $team.namespaces }}
{{- $jobs := printf "%s, namespace=~%q" $operator (join "|" $team.namespaces) }}
{{- $thresholds := merge (dict) $team.thresholds $values.thresholds }}
{{- $group := last $groups | replace "horovodjobs\n" (printf "horovodjobs-%d\n" $index) }}
{{- include "horovodjob-operator.alertGroup" (dict "group" $group "words" (merge (dict "jobs" $jobs) $words $thresholds)) }}
{{- end }}
{{- $jobs := list $operator }}
{{- with $values.namespaces }}{{ $jobs = append $jobs (printf "namespace=~%q" (join "|" .)) }}{{ end }}
{{- with $own }}{{ $jobs = append $jobs (printf "namespace!~%q" (join "|" .)) }}{{ end }}
{{- range $group := rest $groups }}
{{- include "horovodjob-operator.alertGroup" (dict "group" $group "words" (merge (dict "jobs" (join ", " $jobs)) $words $values.thresholds)) }}
{{- end }}
{{- end }}

{{- /* Takes group, and words by their names. */ -}}
{{- define "horovodjob-operator.alertGroup" -}}
{{- $rules := .group }}
{{- range $word, $value := .words }}
{{- $rules = replace (printf "<%s>" $word) (toString $value) $rules }}
{{- end }}
- name: {{ regexReplaceAll "(?m)^    " $rules "" | replace ", }" "}" }}
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

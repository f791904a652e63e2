{{- /* Values that the schema accepts one by one, and the API server would refuse together. */ -}}
{{- define "horovodjob-operator.refusals" -}}
{{- with .Values.strategy }}
{{- $rolling := default dict .rollingUpdate }}
{{- if and (eq (default "" .type) "Recreate") $rolling }}
{{- fail "strategy.type is Recreate, which has no strategy.rollingUpdate: remove one of them" }}
{{- end }}
{{- if and (has (toString $rolling.maxSurge) (list "0" "0%")) (has (toString $rolling.maxUnavailable) (list "0" "0%")) }}
{{- fail "strategy.rollingUpdate.maxSurge and maxUnavailable are both 0, so no pod could be replaced: raise one of them" }}
{{- end }}
{{- end }}
{{- with .Values.podDisruptionBudget }}
{{- if and .enabled (kindIs "invalid" .minAvailable) (kindIs "invalid" .maxUnavailable) }}
{{- fail "podDisruptionBudget has neither minAvailable nor maxUnavailable: set one of them, or podDisruptionBudget.enabled=false" }}
{{- end }}
{{- end }}
{{- with .Values.image }}
{{- if and .registry (regexMatch "^[^/]*[.:][^/]*/" .repository) }}
{{- fail (printf "image.repository is %s and image.registry %s, so the image would have two registries: remove one of them" .repository .registry) }}
{{- end }}
{{- end }}
{{- $metrics := .Values.metrics }}
{{- $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "serviceAccount.labels" .Values.serviceAccount.labels }}
{{- range $part := list "service" "serviceMonitor" "podMonitor" "prometheusRule" "dashboards" }}
{{- $_ := set $labels (printf "metrics.%s.labels" $part) (get $metrics $part).labels }}
{{- end }}
{{- with $metrics.prometheusRule }}
{{- if and .enabled (not (or .selector $metrics.podMonitor.enabled $metrics.serviceMonitor.enabled)) }}
{{- fail "metrics.prometheusRule needs the series of this operator: set metrics.podMonitor.enabled, metrics.serviceMonitor.enabled, or metrics.prometheusRule.selector for a scrape configuration of your own" }}
{{- end }}
{{- $seen := list }}
{{- range .namespaceThresholds }}
{{- range .namespaces }}
{{- if has . $seen }}{{ fail (printf "metrics.prometheusRule.namespaceThresholds has the namespace %s twice: remove one of them" .) }}{{ end }}
{{- $seen = append $seen . }}
{{- end }}
{{- end }}
{{- end }}
{{- $own := include "horovodjob-operator.labels" . | fromYaml }}
{{- range $path, $set := $labels }}
{{- range $label := keys (default dict $set) | sortAlpha }}
{{- if hasKey $own $label }}
{{- fail (printf "%s has the label %s, which the chart sets: remove it" $path $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $monitor := list "serviceMonitor" "podMonitor" }}
{{- range $field := keys (default dict (get $metrics $monitor).endpoint) | sortAlpha }}
{{- if has $field (list "port" "interval" "honorLabels") }}
{{- fail (printf "metrics.%s.endpoint has %s, which the chart sets: remove it" $monitor $field) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq (default "" .Values.dnsPolicy) "None") (not (default dict .Values.dnsConfig).nameservers) }}
{{- fail "dnsPolicy is None, which needs a name server: set dnsConfig.nameservers" }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if and (hasKey . "value") .valueFrom }}
{{- fail (printf "extraEnv has both value and valueFrom for %s: remove one of them" .name) }}
{{- end }}
{{- end }}
{{- range .Values.tolerations }}
{{- if and (eq (default "" .operator) "Exists") .value }}
{{- fail (printf "tolerations has the operator Exists with the value %s: remove the value, or set the operator to Equal" .value) }}
{{- end }}
{{- end }}
{{- $variables := list }}
{{- range include "horovodjob-operator.environment" . | fromYamlArray }}{{ $variables = append $variables .name }}{{ end }}
{{- include "horovodjob-operator.unique" (dict "path" "extraEnv" "key" "name" "items" .Values.extraEnv "own" $variables) }}
{{- include "horovodjob-operator.unique" (dict "path" "extraVolumes" "key" "name" "items" .Values.extraVolumes "own" (list "tmp" "metrics-tls")) }}
{{- include "horovodjob-operator.unique" (dict "path" "extraVolumeMounts" "key" "mountPath" "items" .Values.extraVolumeMounts "own" (list "/tmp" "/etc/horovodjob/metrics-tls")) }}
{{- $containers := concat (default list .Values.extraContainers) (default list .Values.extraInitContainers) }}
{{- include "horovodjob-operator.unique" (dict "path" "extraContainers and extraInitContainers" "key" "name" "items" $containers "own" (list "operator")) }}
{{- end }}

{{- /* Server-side apply refuses a list with two items of one name, or merges them. Takes path, key, items and own. */ -}}
{{- define "horovodjob-operator.unique" -}}
{{- $seen := .own }}
{{- range .items }}
{{- $name := get . $.key }}
{{- if has $name $.own }}
{{- fail (printf "%s has %s, which the chart sets: use the value of the chart, or another %s" $.path $name $.key) }}
{{- else if has $name $seen }}
{{- fail (printf "%s has %s twice: remove one of them" $.path $name) }}
{{- end }}
{{- $seen = append $seen $name }}
{{- end }}
{{- end }}

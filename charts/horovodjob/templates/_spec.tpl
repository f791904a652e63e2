{{- define "horovodjob.name" -}}
{{- $name := default .Release.Name .Values.name }}
{{- if contains "." $name }}
{{- fail (printf "the job would have the name of the release, %s, and a name of a job has no dots: set name" $name) }}
{{- end }}
{{- $name }}
{{- end }}

{{- /* The name of the job. A hash of 8 characters fits into the 54 of a name, and changes only where the API server would refuse the change. */ -}}
{{- define "horovodjob.jobName" -}}
{{- $name := include "horovodjob.name" . }}
{{- if .Values.nameSuffixHash }}
{{- $determines := include "horovodjob.spec" . | fromJson | include "horovodjob.checksums" }}
{{- $run := include "horovodjob.text" (dict "path" "run" "value" (default "" .Values.run)) }}
{{- printf "%s-%s" ($name | trunc 45 | trimSuffix "-") (print $determines $run | sha256sum | trunc 8) }}
{{- else if .Values.run }}
{{- fail "\n\nrun has an effect only on a name with a hash: set nameSuffixHash too" }}
{{- else }}
{{- $name }}
{{- end }}
{{- end }}

{{- /* Annotations with which an earlier run stays when the release no longer has it, as YAML. */ -}}
{{- define "horovodjob.keep" -}}
{{- if .Values.nameSuffixHash -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
argocd.argoproj.io/compare-options: IgnoreExtraneous
{{- end }}
{{- end }}

{{- /* The labels of the objects of the release, as YAML. */ -}}
{{- define "horovodjob.releaseLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- /* The labels of values that a job has beside its own, as YAML; runs of a schedule are an experiment. */ -}}
{{- define "horovodjob.jobLabels" -}}
{{- with .Values.experiment | default ((include "horovodjob.cron" .) | empty | ternary "" (include "horovodjob.name" .)) }}
horovodjob.dev/experiment: {{ quote . }}
{{- end }}
{{- with .Values.queue }}
kueue.x-k8s.io/queue-name: {{ quote . }}
{{- end }}
{{- with .Values.priority }}
kueue.x-k8s.io/priority-class: {{ quote . }}
{{- end }}
{{- end }}

{{- /* When runs of the job begin; empty for a job that runs once. */ -}}
{{- define "horovodjob.cron" -}}
{{- $schedule := default dict .Values.schedule }}
{{- if not $schedule.cron }}
{{- range $field := list "timeZone" "suspend" "concurrencyPolicy" "startingDeadlineSeconds" "successfulJobsHistoryLimit" "failedJobsHistoryLimit" "ttlSecondsAfterFinished" "serviceAccountName" }}
{{- if not (has (toJson (get $schedule $field)) (list "null" "\"\"")) }}
{{- fail (printf "\n\nschedule.%s has an effect only with schedule.cron, without which the job would run once, and at once: set schedule.cron too" $field) }}
{{- end }}
{{- end }}
{{- end }}
{{- default "" $schedule.cron }}
{{- end }}

{{- /* The chart's own keys and those of a value. Takes path, own and set. */ -}}
{{- define "horovodjob.merged" -}}
{{- range $key := keys (default dict .set) | sortAlpha }}
{{- if hasKey $.own $key }}
{{- fail (printf "%s has the key %s, which the chart sets: remove it" $.path $key) }}
{{- end }}
{{- end }}
{{- merge .own (default dict .set) | toYaml }}
{{- end }}

{{- /* The spec that the values describe, as JSON. */ -}}
{{- define "horovodjob.spec" -}}
{{- $empty := list "null" "\"\"" "[]" "{}" }}
{{- if and .Values.priority (not .Values.queue) }}
{{- fail "\n\npriority has an effect only in a queue: set queue too" }}
{{- end }}
{{- $spec := dict "image" (default "" .Values.image) }}
{{- range $field, $value := omit .Values "name" "schedule" "nameSuffixHash" "run" "experiment" "queue" "priority" "labels" "annotations" "parameters" "env" "enabled" "global" }}
{{- if has $field (list "worker" "logs" "runPolicy") }}
{{- range $key, $inner := $value }}
{{- if has (toJson $inner) $empty }}{{ $value = omit $value $key }}{{ end }}
{{- end }}
{{- end }}
{{- if not (has (toJson $value) $empty) }}{{ $_ := set $spec $field $value }}{{ end }}
{{- end }}
{{- $programs := keys (pick $spec "script" "command" "launcherCommand") | sortAlpha }}
{{- if ne (len $programs) 1 }}
{{- fail (printf "\n\nset exactly one of script, command and launcherCommand; set are: %s" (default "none" (join ", " $programs))) }}
{{- end }}
{{- include "horovodjob.addParameters" (dict "spec" $spec "parameters" .Values.parameters) }}
{{- range $name, $value := .Values.env }}
{{- $variable := kindIs "map" $value | ternary $value (dict "value" (include "horovodjob.text" (dict "path" (print "env." $name) "value" $value))) }}
{{- $_ := set $spec "env" (append (default list $spec.env) (merge (dict "name" $name) $variable)) }}
{{- end }}
{{- toJson $spec }}
{{- end }}

{{- /* A value as a string; toString would write large numbers as 1e+06. Takes path and value. */ -}}
{{- define "horovodjob.text" -}}
{{- if kindIs "float64" .value }}
{{- if or (ge .value 9007199254740992.0) (le .value -9007199254740992.0) }}
{{- fail (printf "\n\n%s is %s here, because Helm reads numbers beyond 2^53 inexactly: quote it, in a file of values or with --set-string" .path (toJson .value)) }}
{{- end }}
{{- end }}
{{- kindIs "string" .value | ternary .value (toJson .value) }}
{{- end }}

{{- define "horovodjob.addParameters" -}}
{{- $arguments := list }}
{{- range $name, $value := .parameters }}
{{- $arguments = append $arguments (printf "--%s=%s" $name (include "horovodjob.text" (dict "path" (print "parameters." $name) "value" $value))) }}
{{- end }}
{{- with $arguments }}
{{- if $.spec.launcherCommand }}
{{- fail "\n\nparameters need script or command: write the arguments of launcherCommand into it" }}
{{- else if $.spec.script }}
{{- $_ := set $.spec "script" (merge (dict "args" (concat (default list $.spec.script.args) .)) $.spec.script) }}
{{- else }}
{{- $_ := set $.spec "command" (concat $.spec.command .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "horovodjob.name" -}}
{{- default .Release.Name .Values.name }}
{{- end }}

{{- /* The spec that the values describe, as JSON. */ -}}
{{- define "horovodjob.spec" -}}
{{- $empty := list "null" "\"\"" "[]" "{}" }}
{{- $spec := dict "image" .Values.image }}
{{- range $field, $value := omit .Values "name" "experiment" "queue" "priority" "labels" "annotations" "parameters" "env" "enabled" "global" }}
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
{{- $variable := kindIs "map" $value | ternary $value (dict "value" (include "horovodjob.text" $value)) }}
{{- $_ := set $spec "env" (append (default list $spec.env) (merge (dict "name" $name) $variable)) }}
{{- end }}
{{- toJson $spec }}
{{- end }}

{{- /* A value as a string; toString would write large numbers as 1e+06. */ -}}
{{- define "horovodjob.text" -}}
{{- kindIs "string" . | ternary . (toJson .) }}
{{- end }}

{{- define "horovodjob.addParameters" -}}
{{- $arguments := list }}
{{- range $name, $value := .parameters }}
{{- $arguments = append $arguments (printf "--%s=%s" $name (include "horovodjob.text" $value)) }}
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

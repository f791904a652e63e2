{{- /* A checksum of each field of the spec that is frozen while the job runs, as JSON. */ -}}
{{- define "horovodjob.checksums" -}}
{{- /* The spec does not have default values, and those that somebody sets are no change. */ -}}
{{- $worker := dict "replicas" 1 "gpus" 1 }}
{{- $policy := dict "backoffLimit" 3 "onWorkerLoss" "Restart" "cleanPodPolicy" "Running" }}
{{- $defaults := dict "podSecurity" "Restricted" "spot" false "worker" $worker "runPolicy" $policy }}
{{- $checksums := dict }}
{{- range $field, $value := mergeOverwrite $defaults (deepCopy .) }}
{{- range $key, $inner := has $field (list "worker" "runPolicy") | ternary $value (dict "" $value) }}
{{- $_ := set $checksums (list $field $key | compact | join ".") ($inner | toJson | sha256sum | trunc 8) }}
{{- end }}
{{- end }}
{{- $checksums = omit $checksums "runPolicy.suspend" "runPolicy.ttlSecondsAfterFinished" "runPolicy.terminate" }}
{{- empty .elastic | ternary $checksums (omit $checksums "worker.replicas") | toJson }}
{{- end }}

{{- /* Fails where the API server would refuse the new spec, and names the remedy for a release. */ -}}
{{- define "horovodjob.refuseChanges" -}}
{{- $old := dig "metadata" "annotations" "horovodjob.dev/spec-checksums" "" .live | default "{}" | fromJson }}
{{- $new := .checksums }}
{{- $changed := list }}
{{- range $field := concat (keys $old) (keys $new) | uniq | sortAlpha }}
{{- if ne (get $old $field) (get $new $field) }}{{ $changed = append $changed $field }}{{ end }}
{{- end }}
{{- $phase := dig "status" "phase" "Queued" .live }}
{{- $job := printf "HorovodJob %s/%s" .release.Namespace .live.metadata.name }}
{{- $another := "install a release with another name for another run" }}
{{- if and $old $changed }}
{{- $fields := join ", " $changed }}
{{- if has $phase (list "Succeeded" "Failed") }}
{{- fail (printf "\n\n%s has ended (%s) and never runs again, so these fields cannot change: %s.\nLeave it as it is and %s, or delete it first: helm uninstall %s --namespace %s" $job $phase $fields $another .release.Name .release.Namespace) }}
{{- else if not (or (dig "spec" "runPolicy" "suspend" false .live) (dig "runPolicy" "suspend" false .spec)) }}
{{- fail (printf "\n\n%s is not suspended (%s), and these fields can change only while it is: %s.\nAdd --set runPolicy.suspend=true to this upgrade, and set it to false in the next one: the job starts again, from its checkpoint. Or %s.\nWhile the job runs, runPolicy.suspend, runPolicy.terminate, runPolicy.ttlSecondsAfterFinished and, with elastic, worker.replicas can change." $job $phase $fields $another) }}
{{- end }}
{{- end }}
{{- end }}

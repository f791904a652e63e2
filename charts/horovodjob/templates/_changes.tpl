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

{{- /* Fails where the upgrade that adds a hash to the name would delete the job without one. Takes the root. */ -}}
{{- define "horovodjob.refuseLoss" -}}
{{- $name := include "horovodjob.name" . }}
{{- with empty .Values.nameSuffixHash | ternary dict (lookup "horovodjob.dev/v1beta1" "HorovodJob" .Release.Namespace $name) }}
{{- $annotations := default dict .metadata.annotations }}
{{- if and (eq (get $annotations "meta.helm.sh/release-name") $.Release.Name) (ne (get $annotations "helm.sh/resource-policy") "keep") }}
{{- fail (printf "\n\nnameSuffixHash gives the next job another name, and Helm would delete HorovodJob %s/%s (%s) of this release.\nTo keep it: kubectl --namespace %s annotate horovodjob %s helm.sh/resource-policy=keep" $.Release.Namespace $name (dig "status" "phase" "Queued" .) $.Release.Namespace $name) }}
{{- end }}
{{- end }}
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
{{- $another := "for another run, install a release with another name (nameSuffixHash=true gives each run one)" }}
{{- if and $old $changed }}
{{- $fields := join ", " $changed }}
{{- if has $phase (list "Succeeded" "Failed") }}
{{- fail (printf "\n\n%s has ended (%s) and never runs again, so these fields cannot change: %s.\nLeave it as it is, or delete it first: helm uninstall %s --namespace %s; %s" $job $phase $fields .release.Name .release.Namespace $another) }}
{{- else if not (or (dig "spec" "runPolicy" "suspend" false .live) (dig "runPolicy" "suspend" false .spec)) }}
{{- fail (printf "\n\n%s is not suspended (%s), and these fields can change only while it is: %s.\nAdd --set runPolicy.suspend=true to this upgrade, and set it to false in the next one: the job starts again, from its checkpoint. Or, %s.\nWhile the job runs, runPolicy.suspend, runPolicy.terminate, runPolicy.ttlSecondsAfterFinished and, with elastic, worker.replicas can change." $job $phase $fields $another) }}
{{- end }}
{{- end }}
{{- end }}

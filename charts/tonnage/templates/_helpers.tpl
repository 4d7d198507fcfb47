{{/* Labels of the operator's pods, as in the kustomizations. */}}
{{- define "tonnage.podLabels" -}}
app.kubernetes.io/name: tonnage
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: tonnage
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Labels of every object: the labels above and Helm's. */}}
{{- define "tonnage.labels" -}}
{{ include "tonnage.podLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "tonnage.image" -}}
{{- with .Values.image }}
{{- .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* Name of a cluster-scoped object, with the shard. Takes root and name. */}}
{{- define "tonnage.ofShard" -}}
{{ .name }}{{ with .root.Values.shard }}-{{ . }}{{ end }}
{{- end }}

{{/*
An object of files/ (a copy of manifests/) in this release.
Takes root, object, namespace and, optionally, additional labels.
*/}}
{{- define "tonnage.shipped" -}}
{{- $object := deepCopy .object }}
{{- $labels := merge (include "tonnage.labels" .root | fromYaml) (default dict .labels) (default dict $object.metadata.labels) }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- if $object.metadata.namespace }}
{{- $_ := set $object.metadata "namespace" .namespace }}
{{- end }}
{{- range $object.subjects }}
{{- $_ := set . "namespace" $.root.Release.Namespace }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}

{{/* The role or binding `object`, with the permissions that the values add or remove. */}}
{{- define "tonnage.granted" -}}
{{- $object := deepCopy .object }}
{{- if $object.rules }}
{{- $rules := list }}
{{- range $object.rules }}
{{- if and (or (has "leaderworkersets" .resources) (has "controllerrevisions" .resources)) (not $.root.Values.rbac.leaderWorkerSets) }}
{{- else if and (has "resource.k8s.io" .apiGroups) (not $.root.Values.rbac.dynamicResources) }}
{{- else if and (has "batch" .apiGroups) (not $.root.Values.rbac.downloadJobs) }}
{{- else if not (has "secrets" .resources) }}
{{- $rules = append $rules . }}
{{- else if $.root.Values.rbac.secretNames }}
{{- $rules = append $rules (set . "resourceNames" $.root.Values.rbac.secretNames) }}
{{- end }}
{{- end }}
{{- if and .root.Values.gateway.inferencePool (eq $object.metadata.name "tonnage") }}
{{- range .root.Files.Get "files/components/inference-pool/rule.yaml" | fromYamlArray }}
{{- $rules = append $rules .value }}
{{- end }}
{{- end }}
{{- if and .root.Values.settings.computeDomains (eq $object.metadata.name "tonnage") }}
{{- range .root.Files.Get "files/components/compute-domains/rule.yaml" | fromYamlArray }}
{{- $rules = append $rules .value }}
{{- end }}
{{- end }}
{{- range $rules }}
{{- if and .resourceNames (has "leases" .resources) }}
{{- $_ := set . "resourceNames" (list (include "tonnage.ofShard" (dict "root" $.root "name" "tonnage"))) }}
{{- end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
{{- if hasPrefix "Cluster" $object.kind }}
{{- $name := include "tonnage.ofShard" (dict "root" .root "name" $object.metadata.name) }}
{{- $_ := set $object.metadata "name" $name }}
{{- range $object.roleRef | list | compact }}
{{- if not (hasPrefix "system:" .name) }}
{{- $_ := set . "name" $name }}
{{- end }}
{{- end }}
{{- end }}
{{- include "tonnage.shipped" (dict "root" .root "object" $object "namespace" .namespace) }}
{{- end }}

{{/* The admission policy or binding `object`, for the ServiceAccount of this release. */}}
{{- define "tonnage.policy" -}}
{{- $object := deepCopy .object }}
{{- $name := include "tonnage.ofShard" (dict "root" .root "name" $object.metadata.name) }}
{{- $_ := set $object.metadata "name" $name }}
{{- if $object.spec.policyName }}
{{- $_ := set $object.spec "policyName" $name }}
{{- end }}
{{- range $object.spec.matchConditions }}
{{- if eq .name "operator" }}
{{- $user := printf "system:serviceaccount:%s:tonnage" $.root.Release.Namespace }}
{{- $_ := set . "expression" (printf "request.userInfo.username == '%s'" $user) }}
{{- end }}
{{- end }}
{{- range $object.spec.variables }}
{{- if eq .name "weightsPaths" }}
{{- $_ := set . "expression" ($.root.Values.rbac.weightsPaths | toJson) }}
{{- end }}
{{- end }}
{{- include "tonnage.shipped" (dict "root" .root "object" $object "namespace" .root.Release.Namespace) }}
{{- end }}

{{/* The NetworkPolicy `object`, with the namespaces of Prometheus and of this release. */}}
{{- define "tonnage.networkPolicy" -}}
{{- $object := deepCopy .object }}
{{- $names := dict "monitoring" .root.Values.networkPolicy.monitoringNamespace "tonnage-system" .root.Release.Namespace }}
{{- range concat $object.spec.ingress $object.spec.egress }}
{{- range concat (default list .from) (default list .to) }}
{{- $labels := dig "namespaceSelector" "matchLabels" dict . }}
{{- with get $labels "kubernetes.io/metadata.name" }}
{{- $_ := set $labels "kubernetes.io/metadata.name" (get $names .) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "tonnage.shipped" (dict "root" .root "object" $object "namespace" .namespace) }}
{{- end }}

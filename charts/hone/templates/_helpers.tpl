{{- define "hone.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hone.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "hone.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "hone.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "hone.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "hone.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image's full name, from a dictionary of the image, the default tag and the value's name. A name without a
registry is somebody's of the default public one, so it is taken only with a digest. */}}
{{- define "hone.image" -}}
{{- if not (or .image.registry .image.digest) -}}
{{- fail (printf "%s.registry is empty: name the registry that holds your images, such as registry.example.com, or pin %s.digest" .name .name) -}}
{{- end -}}
{{- $name := .image.repository -}}
{{- if .image.registry -}}{{- $name = printf "%s/%s" .image.registry $name -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Names of cluster-scoped objects: two releases in two namespaces do not collide. */}}
{{- define "hone.clusterName" -}}
{{- if eq .Release.Namespace (include "hone.fullname" .) -}}
{{- include "hone.fullname" . -}}
{{- else -}}
{{- printf "%s-%s" .Release.Namespace (include "hone.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The port on which the pods behind an endpoint are reached, from a dictionary of `endpoint` and `port`. */}}
{{- define "hone.endpointPort" -}}
{{- $url := urlParse .endpoint -}}
{{- $named := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $default := ternary "443" "80" (eq $url.scheme "https") -}}
{{- with .port }}{{ . }}{{ else }}{{ default $default $named }}{{ end -}}
{{- end -}}

{{- define "terrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* 52 characters, so that the names of pods and claims fit the 63 of a label. */}}
{{- define "terrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "terrace.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "terrace.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "terrace.selector" -}}
app.kubernetes.io/name: {{ include "terrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "terrace.labels" -}}
{{ include "terrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "terrace.tokenSecret" -}}
{{- default (printf "%s-admin" (include "terrace.fullname" .)) .Values.admin.existingSecret -}}
{{- end -}}

{{/* MiB that the server may take: -m, the cap of connections, and 32 MiB. */}}
{{- define "terrace.memoryLimit" -}}
{{- $m := int .Values.memory -}}
{{- printf "%dMi" (add $m (max 64 (div $m 4)) 32) -}}
{{- end -}}

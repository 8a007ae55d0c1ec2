{{- define "labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pod" -}}
metadata:
  labels:
    {{- include "labels" . | nindent 4 }}
spec:
  serviceAccountName: {{ .Release.Name }}
  priorityClassName: {{ .Release.Name }}
  containers:
    - name: main
      image: example.com/shop:{{ .Chart.Version }}
      ports: [{name: http, containerPort: 8080}]
      envFrom: [{configMapRef: {name: {{ .Release.Name }}}}, {secretRef: {name: {{ .Release.Name }}}}]
      resources: {requests: {cpu: 10m, memory: 16Mi}}
      readinessProbe: {httpGet: {path: /ready, port: http}}
{{- end }}

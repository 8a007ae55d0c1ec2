{{/* The beginning of all names. */}}
{{- define "portico.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* The labels by which pods are selected; the argument is (list ROOT COMPONENT). */}}
{{- define "portico.selector" -}}
app.kubernetes.io/name: portico
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels of objects; the argument is (list ROOT COMPONENT). */}}
{{- define "portico.labels" -}}
{{ include "portico.selector" . }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{/* The names of the components. */}}
{{- define "portico.components" -}}
gateway core crd{{ if .Values.etcd.enabled }} etcd{{ end }}
{{- end }}

{{/* URLs of the pods of a StatefulSet, as a list in JSON; the argument is (list ROOT COMPONENT REPLICAS PORT). */}}
{{- define "portico.urls" -}}
{{- $set := printf "%s-%s" (include "portico.name" (index . 0)) (index . 1) -}}
{{- $urls := list -}}
{{- range $i := until (int (index . 2)) -}}
{{- $urls = append $urls (printf "https://%s-%d.%s:%d" $set $i $set (int (index $ 3))) -}}
{{- end -}}
{{- toJson $urls -}}
{{- end }}

{{/* The configuration of the processes. */}}
{{- define "portico.config" -}}
{{- $name := include "portico.name" . -}}
{{- $etcd := .Values.etcd.servers -}}
{{- if .Values.etcd.enabled }}{{ $etcd = include "portico.urls" (list . "etcd" .Values.etcd.replicas 2379) | fromJsonArray }}{{ end -}}
apiVersion: config.portico.dev/v1alpha1
kind: PorticoConfiguration
all:
  probe-listen: 0.0.0.0:8080
  shutdown-delay-duration: 10s
  etcd-servers: {{ toJson $etcd }}
  {{- if or .Values.etcd.enabled (hasPrefix "https://" (first $etcd)) }}
  etcd-cafile: /etc/portico/pki/etcd-ca.crt
  etcd-certfile: /etc/portico/pki/etcd-client.crt
  etcd-keyfile: /etc/portico/pki/etcd-client.key
  {{- end }}
  requestheader-client-ca-file: /etc/portico/pki/front-proxy-ca.crt
  requestheader-allowed-names: [front-proxy-client]
  service-account-issuer: https://kubernetes.default.svc.cluster.local
gateway:
  listen: 0.0.0.0:6443
  tls-cert-file: /etc/portico/pki/gateway.crt
  tls-private-key-file: /etc/portico/pki/gateway.key
  client-ca-file: /etc/portico/pki/client-ca.crt
  proxy-client-cert-file: /etc/portico/pki/front-proxy-client.crt
  proxy-client-key-file: /etc/portico/pki/front-proxy-client.key
  service-account-key-file: [/etc/portico/pki/service-account.pub]
  backend:
  - core={{ include "portico.urls" (list . "core" .Values.core.replicas 7443) | fromJsonArray | join "," }}
  - crd={{ include "portico.urls" (list . "crd" .Values.crd.replicas 7444) | fromJsonArray | join "," }}
  backend-ca-file: [/etc/portico/pki/serving-ca.crt]
  state-dir: /var/lib/portico
  goaway-chance: 0.001
{{- range $server, $port := dict "core" 7443 "crd" 7444 }}
{{ $server }}:
  listen: 0.0.0.0:{{ $port }}
  tls-cert-file: /etc/portico/pki/{{ $server }}.crt
  tls-private-key-file: /etc/portico/pki/{{ $server }}.key
  gateway: https://{{ $name }}:{{ $.Values.gateway.service.port }}
  gateway-ca-file: /etc/portico/pki/serving-ca.crt
  gateway-cert-file: /etc/portico/pki/{{ $server }}-client.crt
  gateway-key-file: /etc/portico/pki/{{ $server }}-client.key
  {{- if eq $server "core" }}
  service-account-signing-key-file: /etc/portico/pki/service-account.key
  root-ca-file: /etc/portico/pki/serving-ca.crt
  {{- end }}
{{- end }}
{{- end }}

{{/* The volume of the certificates of a component; the argument is (list ROOT COMPONENT). */}}
{{- define "portico.pki" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $name := include "portico.name" $root -}}
name: pki
{{- if $root.Values.certManager.enabled }}
projected:
  defaultMode: 0440
  sources:
  - secret: {name: {{ $name }}-{{ $component }}, items: [{key: tls.crt, path: {{ $component }}.crt}, {key: tls.key, path: {{ $component }}.key}, {key: ca.crt, path: {{ eq $component "etcd" | ternary "etcd-ca.crt" "serving-ca.crt" }}}]}
  {{- if eq $component "etcd" }}
  - secret: {name: {{ $name }}-etcd-client-ca, items: [{key: tls.crt, path: etcd-client-ca.crt}]}
  {{- else }}
  {{- if $root.Values.etcd.enabled }}
  - secret: {name: {{ $name }}-{{ $component }}-etcd-client, items: [{key: tls.crt, path: etcd-client.crt}, {key: tls.key, path: etcd-client.key}]}
  - secret: {name: {{ $name }}-etcd-ca, items: [{key: tls.crt, path: etcd-ca.crt}]}
  {{- end }}
  - secret: {name: {{ $name }}-front-proxy-ca, items: [{key: tls.crt, path: front-proxy-ca.crt}]}
  {{- end }}
  {{- if eq $component "gateway" }}
  - secret: {name: {{ $name }}-front-proxy-client, items: [{key: tls.crt, path: front-proxy-client.crt}, {key: tls.key, path: front-proxy-client.key}]}
  - secret: {name: {{ $name }}-client-ca, items: [{key: tls.crt, path: client-ca.crt}]}
  - secret: {name: {{ $name }}-service-account, items: [{key: tls.crt, path: service-account.pub}]}
  {{- else if ne $component "etcd" }}
  - secret: {name: {{ $name }}-{{ $component }}-client, items: [{key: tls.crt, path: {{ $component }}-client.crt}, {key: tls.key, path: {{ $component }}-client.key}]}
  {{- end }}
  {{- if eq $component "core" }}
  - secret: {name: {{ $name }}-service-account, items: [{key: tls.key, path: service-account.key}]}
  {{- end }}
  {{- with $root.Values.etcd.secretName }}
  - secret: {name: {{ . }}, items: [{key: ca.crt, path: etcd-ca.crt}, {key: tls.crt, path: etcd-client.crt}, {key: tls.key, path: etcd-client.key}]}
  {{- end }}
{{- else if $root.Values.etcd.secretName }}
projected:
  defaultMode: 0440
  sources:
  - secret: {name: {{ $name }}-{{ $component }}}
  - secret: {name: {{ $root.Values.etcd.secretName }}, items: [{key: ca.crt, path: etcd-ca.crt}, {key: tls.crt, path: etcd-client.crt}, {key: tls.key, path: etcd-client.key}]}
{{- else }}
secret: {secretName: {{ $name }}-{{ $component }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* What all pods have; the argument is (list ROOT COMPONENT). */}}
{{- define "portico.pod" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
serviceAccountName: {{ include "portico.name" $root }}-{{ $component }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
{{- range tuple "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "portico.selector" $ | nindent 6 }}
  {{- if eq $component "gateway" }}
  matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{/* The security context of all containers. */}}
{{- define "portico.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The pod template of a process of Portico; the argument is (list ROOT COMPONENT PORT). */}}
{{- define "portico.process" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
metadata:
  labels: {{- include "portico.selector" . | nindent 4 }}
  annotations: # pods start again when it changes
    checksum/config: {{ include (print $root.Template.BasePath "/config.yaml") $root | sha256sum }}
spec:
  {{- include "portico.pod" . | nindent 2 }}
  terminationGracePeriodSeconds: 80
  containers:
  - name: {{ $component }}
    image: {{ $root.Values.image.repository }}:{{ default $root.Chart.AppVersion $root.Values.image.tag }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: [{{ $component }}, --config=/etc/portico/config/portico.yaml]
    ports:
    - {name: https, containerPort: {{ index . 2 }}}
    - {name: probes, containerPort: 8080}
    startupProbe:
      httpGet: {path: /livez, port: probes}
      periodSeconds: 1
      failureThreshold: 120
    livenessProbe:
      httpGet: {path: /livez, port: probes}
      timeoutSeconds: 5
    readinessProbe: # without etcd it serves reads from memory
      httpGet: {path: "/readyz?exclude=etcd&exclude=etcd-readiness", port: probes}
      periodSeconds: 2
      timeoutSeconds: 2
      failureThreshold: 2
    resources: {{- toYaml (index $root.Values $component).resources | nindent 6 }}
    {{- include "portico.container" $root | nindent 4 }}
    volumeMounts:
    - {name: config, mountPath: /etc/portico/config, readOnly: true}
    - {name: pki, mountPath: /etc/portico/pki, readOnly: true}
    {{- if eq $component "gateway" }}
    - {name: state, mountPath: /var/lib/portico}
    {{- end }}
  volumes:
  - name: config
    configMap: {name: {{ include "portico.name" $root }}}
  - {{- include "portico.pki" . | nindent 4 }}
  {{- if eq $component "gateway" }}
  - name: state
    emptyDir: {sizeLimit: 1Gi}
  {{- end }}
{{- end }}

{{/* A pod template with the fields of the value "pod" of its component; the argument is (list POD-TEMPLATE ROOT COMPONENT). */}}
{{- define "portico.template" -}}
{{- $own := index (index . 1).Values (index . 2) -}}
{{- toYaml (mustMergeOverwrite (index . 0 | fromYaml) (dict "spec" $own.pod)) -}}
{{- end }}

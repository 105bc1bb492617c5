{{/* Names, labels and what several templates need. */}}

{{- define "azekura.name" -}}
{{- if contains "azekura" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-azekura" (.Release.Name | trunc 32 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* {{ include "azekura.labels" (list . "node") }} */}}
{{- define "azekura.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{ include "azekura.selector" . }}
{{- end }}

{{- define "azekura.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: azekura
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* {{ include "azekura.image" (list . "azekura-csi") }} */}}
{{- define "azekura.image" -}}
{{- $root := index . 0 -}}
{{ printf "%s/%s:%s" $root.Values.image.prefix (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) }}
{{- end }}

{{- define "azekura.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "azekura.domain" -}}
{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* Member number N of etcd, by name. */}}
{{- define "azekura.member" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-etcd" (include "azekura.name" $root) -}}
{{ printf "%s-%d.%s.%s" $name (int (index . 1)) $name (include "azekura.domain" $root) }}
{{- end }}

{{/* The configuration servers, for azekura node --config. */}}
{{- define "azekura.config" -}}
{{- $root := . -}}
{{- $servers := .Values.etcd.servers -}}
{{- if not $servers -}}
{{- $servers = list -}}
{{- range $number, $_ := .Values.etcd.machines -}}
{{- $servers = append $servers (printf "http://%s:2379" (include "azekura.member" (list $root $number))) -}}
{{- end -}}
{{- end -}}
{{ join "," $servers }}
{{- end }}

{{/* Values that contradict each other, or without which nothing can be made. */}}
{{- define "azekura.check" -}}
{{- $count := len .Values.etcd.machines -}}
{{- if and .Values.etcd.machines .Values.etcd.servers -}}
{{- fail "etcd.machines and etcd.servers: give one of them, for there is one configuration" -}}
{{- end -}}
{{- if not (or .Values.etcd.machines .Values.etcd.servers) -}}
{{- fail "where is the configuration kept? Give etcd.machines, the names of one, three or five Kubernetes nodes (kubectl get nodes), or etcd.servers, the addresses of an etcd of yours" -}}
{{- end -}}
{{- $secured := hasPrefix "https://" (join "," .Values.etcd.servers) -}}
{{- if ne $secured (not (empty .Values.etcd.secret)) -}}
{{- fail "etcd.servers with https:// and etcd.secret: nodes need both, or none" -}}
{{- end -}}
{{- if and .Values.etcd.user (not .Values.etcd.secret) -}}
{{- fail "etcd.user: its password and the authority of etcd's certificates have to be in etcd.secret" -}}
{{- end -}}
{{- if and .Values.etcd.machines (eq (mod $count 2) 0) -}}
{{- fail (printf "etcd.machines has %d names: an even number survives no more than one less; give one, three or five" $count) -}}
{{- end -}}
{{- if .Values.csi.snapshotMetadata.enabled -}}
{{- if not .Values.snapshots.enabled -}}
{{- fail "csi.snapshotMetadata.enabled: there are no snapshots to tell of, since snapshots.enabled is false" -}}
{{- end -}}
{{- if not (and .Values.csi.snapshotMetadata.tlsSecret (contains "BEGIN CERTIFICATE" .Values.csi.snapshotMetadata.caCert)) -}}
{{- fail "csi.snapshotMetadata: tlsSecret names a Secret with tls.crt and tls.key, and caCert is the certificate (PEM) of the authority that has signed it; backup programs need both" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.csi.storageCapacity .Values.csi.controller.tokenSecret -}}
{{- fail "csi.storageCapacity: a token of the role csi (csi.controller.tokenSecret) does not see how much room there is, and pods would wait for ever: leave one of them out" -}}
{{- end -}}
{{- if and (eq .Values.csi.attach "nvme") (not .Values.node.hostNetwork) -}}
{{- fail "csi.attach is nvme: the kernel keeps a connection to the machine's node at 127.0.0.1, so node.hostNetwork has to be true" -}}
{{- end -}}
{{- end }}

{{- define "azekura.csiUpdate" -}}
{{- $wanted := .Values.csi.node.updateStrategy -}}
{{- if ne $wanted "auto" }}{{ $wanted }}{{ else if eq .Values.csi.attach "nvme" }}RollingUpdate{{ else }}OnDelete{{ end }}
{{- end }}

{{/* What a container may that needs nothing of the machine. */}}
{{- define "azekura.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* Whether kubelet is to publish volumes again and again: where a class names a secret for that. */}}
{{- define "azekura.republish" -}}
{{- $named := false -}}
{{- range .Values.storageClasses -}}
{{- if hasKey (.parameters | default dict) "csi.storage.k8s.io/node-publish-secret-name" -}}
{{- $named = true -}}
{{- end -}}
{{- end -}}
{{- if eq (toString .Values.csi.republish) "auto" }}{{ $named }}{{ else }}{{ .Values.csi.republish }}{{ end -}}
{{- end }}

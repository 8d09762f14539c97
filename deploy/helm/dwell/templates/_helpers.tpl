{{/* The labels that select the pods: they never change. */}}
{{- define "dwell.selector" -}}
app.kubernetes.io/name: dwell
app.kubernetes.io/component: gateway
{{- end }}

{{/* The labels of every object. */}}
{{- define "dwell.labels" -}}
{{ include "dwell.selector" . }}
app.kubernetes.io/part-of: dwell
app.kubernetes.io/instance: {{ .Release.Name | quote }} # chart only
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }} # chart only
app.kubernetes.io/managed-by: {{ .Release.Service | quote }} # chart only
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }} # chart only
{{- end }}

{{/* What is below `name` in the metadata of an object: `root`, and `labels` and `annotations` that are its own. */}}
{{- define "dwell.metadata" -}}
labels:
  {{- include "dwell.labels" .root | nindent 2 }}
  {{- with mergeOverwrite (deepCopy .root.Values.labels) (.labels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with mergeOverwrite (deepCopy .root.Values.annotations) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
Helm reads each number of a file as a float, and prints 10737418240 as 1.073741824e+10. This makes whole numbers of them in a value,
at any depth: in `box.value`, where `box.path` names it in errors.
*/}}
{{- define "dwell.exact" -}}
{{- $box := . -}}
{{- if kindIs "map" $box.value -}}
  {{- range $key, $value := $box.value -}}
    {{- $inner := dict "value" $value "path" (printf "%s.%s" $box.path $key | trimPrefix ".") -}}
    {{- include "dwell.exact" $inner -}}
    {{- $_ := set $box.value $key $inner.value -}}
  {{- end -}}
{{- else if kindIs "slice" $box.value -}}
  {{- $items := list -}}
  {{- range $at, $value := $box.value -}}
    {{- $inner := dict "value" $value "path" (printf "%s[%d]" $box.path $at) -}}
    {{- include "dwell.exact" $inner -}}
    {{- $items = append $items $inner.value -}}
  {{- end -}}
  {{- $_ := set $box "value" $items -}}
{{- else if kindIs "float64" $box.value -}}
  {{- if or (ge $box.value 9007199254740992.0) (le $box.value -9007199254740992.0) -}}
    {{- fail (printf "%s: Helm does not read so large a number exactly: write it in quotes" $box.path) -}}
  {{- else if eq (floor $box.value) $box.value -}}
    {{- $_ := set $box "value" (int64 $box.value) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Every template begins with this: numbers as written, and values that contradict each other are refused. */}}
{{- define "dwell.begin" -}}
{{- include "dwell.exact" (dict "value" .Values "path" "") -}}
{{- range $quantities := list .Values.resources.requests .Values.resources.limits .Values.storage -}}
  {{- range $name, $quantity := $quantities -}}
    {{- $_ := set $quantities $name (toString $quantity) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.env -}}
  {{- if hasPrefix "DWELL_" .name -}}
    {{- fail (printf "env: %s: settings of dwell go below config, where the chart sees them" .name) -}}
  {{- end -}}
{{- end -}}
{{- range .Values.volumes -}}
  {{- if has .name (list "data" "config" "secrets" "tls") -}}
    {{- fail (printf "volumes: %s: the chart has a volume of this name" .name) -}}
  {{- end -}}
{{- end -}}
{{- range list "cert_file" "key_file" -}}
  {{- if dig "tls" . "" $.Values.config -}}
    {{- fail (printf "config.tls.%s: use tls.enabled and tls.secretName, which change the probes too" .) -}}
  {{- end -}}
{{- end -}}
{{- if and (dig "tls" "client_ca_file" "" .Values.config) (not .Values.admin.enabled) -}}
  {{- fail "config.tls.client_ca_file: the kubelet has no client certificate, so no probe would succeed: set admin.enabled" -}}
{{- end -}}
{{- if dig "admin" "listen" "" .Values.config -}}
  {{- fail "config.admin.listen: use admin.enabled and admin.port, which change the probes too" -}}
{{- end -}}
{{- if and .Values.admin.enabled (eq (.Values.admin.port | int) 7373) -}}
  {{- fail "admin.port: 7373 is the port for clients" -}}
{{- end -}}
{{- with .Values.config.listen -}}
  {{- if not (has . (list "0.0.0.0:7373" "[::]:7373")) -}}
    {{- fail (printf "config.listen: %s: services and probes need port 7373 of all addresses: 0.0.0.0:7373 or [::]:7373" .) -}}
  {{- end -}}
{{- end -}}
{{- if ne (.Values.config.data_dir | default "/var/lib/dwell") "/var/lib/dwell" -}}
  {{- fail (printf "config.data_dir: %s: the volume is at /var/lib/dwell" .Values.config.data_dir) -}}
{{- end -}}
{{- if and (include "dwell.handsOver" .) (dig "auth" "token" list .Values.config) -}}
  {{- $scopes := list -}}
  {{- range .Values.config.auth.token -}}
    {{- $scopes = concat $scopes (.scopes | default list) -}}
  {{- end -}}
  {{- if not (or (has "hand_over" $scopes) (has "admin" $scopes)) -}}
    {{- fail "config.auth.token: none has the scope hand_over, which a broker needs that hands over what it has buffered" -}}
  {{- end -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
  {{- if gt (.Values.autoscaling.minReplicas | int) (.Values.autoscaling.maxReplicas | int) -}}
    {{- fail "autoscaling.maxReplicas: is below autoscaling.minReplicas" -}}
  {{- end -}}
  {{- if not (dig "requests" "cpu" "" .Values.resources) -}}
    {{- fail "resources.requests.cpu: is needed with autoscaling.enabled, which compares with it" -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Lays `with` over `over`: maps are merged, anything else is replaced, null takes away. */}}
{{- define "dwell.overlay" -}}
{{- $over := .over -}}
{{- range $key, $value := .with -}}
  {{- if and (kindIs "map" $value) (kindIs "map" (get $over $key)) -}}
    {{- include "dwell.overlay" (dict "over" (get $over $key) "with" $value) -}}
  {{- else if kindIs "invalid" $value -}}
    {{- $_ := unset $over $key -}}
  {{- else -}}
    {{- $_ := set $over $key $value -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* Whether a broker that stops gives what it has buffered to the others. */}}
{{- define "dwell.handsOver" -}}
{{- if or .Values.handOver .Values.autoscaling.enabled -}}true{{- end -}}
{{- end }}

{{/* The configuration as a map in `box.value`: files/gateway.toml, what other values ask for, and `config` over it. */}}
{{- define "dwell.settings" -}}
{{- $settings := .root.Files.Get "files/gateway.toml" | fromToml -}}
{{- with .root.Values -}}
  {{- if .tls.enabled -}}
    {{- $_ := set $settings "tls" (dict "cert_file" "/run/secrets/dwell-tls/tls.crt" "key_file" "/run/secrets/dwell-tls/tls.key") -}}
  {{- end -}}
  {{- if .admin.enabled -}}
    {{- $all := ternary "[::]" "0.0.0.0" (hasPrefix "[" (.config.listen | default "")) -}}
    {{- $_ := set $settings "admin" (dict "listen" (printf "%s:%d" $all (.admin.port | int))) -}}
  {{- end -}}
  {{- if include "dwell.handsOver" $.root -}}
    {{- $wal := dict "hand_over" "http://dwell-gateway:7373" "hand_over_token_file" "/run/secrets/dwell/hand-over" -}}
    {{- if .tls.enabled -}}
      {{- $_ := set $wal "hand_over" "https://dwell-gateway:7373" -}}
      {{- $_ := set $wal "hand_over_ca_file" "/run/secrets/dwell-tls/ca.crt" -}}
    {{- end -}}
    {{- $_ := set $settings "wal" $wal -}}
  {{- end -}}
  {{- if dig "redis" "url" "" .config -}}
    {{- $_ := unset $settings.redis "url_file" -}}
  {{- end -}}
  {{- include "dwell.overlay" (dict "over" $settings "with" (deepCopy .config)) -}}
{{- end -}}
{{- $_ := set . "value" $settings -}}
{{- end }}

{{/* The port for operators: where probes and scrapes go. */}}
{{- define "dwell.operators" -}}
{{- ternary "admin" "http" .Values.admin.enabled -}}
{{- end }}

{{/* A duration in whole seconds, rounded up: `text`, and `path` for errors. */}}
{{- define "dwell.seconds" -}}
{{- $text := .text | toString | nospace -}}
{{- if not (regexMatch "^([0-9]+(ms|[dhms]))+$" $text) -}}
  {{- fail (printf "%s: %q: the chart reads durations such as \"45s\" or \"1m30s\"" .path .text) -}}
{{- end -}}
{{- $unit := dict "d" 86400000 "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $ms := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[dhms])" $text -1 -}}
  {{- $name := regexFind "[a-z]+$" . -}}
  {{- $ms = add $ms (mul (trimSuffix $name . | int64) (get $unit $name)) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end }}

{{/*
How long a stop may take: group.drain_timeout, as long again if the buffer is handed over, http.linger, and 20 s for the rest
(docs/operate/run.md).
*/}}
{{- define "dwell.grace" -}}
{{- $box := dict "root" . -}}
{{- include "dwell.settings" $box -}}
{{- $drain := include "dwell.seconds" (dict "text" $box.value.group.drain_timeout "path" "config.group.drain_timeout") | int64 -}}
{{- $times := ternary 2 1 (dig "wal" "hand_over" "" $box.value | empty | not) -}}
{{- $linger := include "dwell.seconds" (dict "text" (dig "http" "linger" "0s" $box.value) "path" "config.http.linger") | int64 -}}
{{- $needed := add (mul $times $drain) $linger 20 -}}
{{- $given := .Values.terminationGracePeriodSeconds | int64 -}}
{{- if and $given (lt $given $needed) -}}
  {{- fail (printf "terminationGracePeriodSeconds: %d: a stop may take %d s (config.group.drain_timeout %ss, %d times, config.http.linger %ss, and 20 s)" $given $needed (toString $drain) $times (toString $linger)) -}}
{{- end -}}
{{- $given | default $needed -}}
{{- end }}

{{/* The port of a URL. */}}
{{- define "dwell.port" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary 443 80 (eq $url.scheme "https")) -}}
{{- end }}

{{- define "dwell.scheme" -}}
{{- ternary "https" "http" .Values.tls.enabled -}}
{{- end }}

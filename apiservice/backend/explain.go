package backend

// The texts of kubectl explain, by JSON name; "" is the type itself.

// models begins the names of the schemas.

const models = "dev.portico.gateway." + Version + "."

// OpenAPIModelName names the schema.
func (Backend) OpenAPIModelName() string { return models + "Backend" }

// SwaggerDoc describes the fields.
func (Backend) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "Backend is a server behind the gateway: one or more endpoints that answer alike, how they are trusted, which of their API groups are registered, and the policy of requests to them. The right to write Backends is worth as much as cluster-admin: the gateway, which servers trust to name users, connects to the addresses that they contain.",
		"metadata": "Standard object's metadata. Backends have no namespace. An APIService without spec.service leads to the Backend that its annotation gateway.portico.dev/backend names.",
		"spec":     "spec is where the server is and how requests are sent to it.",
		"status":   "status is what the elected gateway sees of the server. It is read-only.",
	}
}

// OpenAPIModelName names the schema.
func (BackendList) OpenAPIModelName() string { return models + "BackendList" }

// SwaggerDoc describes the fields.
func (BackendList) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "BackendList is a list of Backends.",
		"metadata": "Standard list metadata.",
		"items":    "items are the Backends.",
	}
}

// OpenAPIModelName names the schema.
func (Spec) OpenAPIModelName() string { return models + "BackendSpec" }

// SwaggerDoc describes the fields.
func (Spec) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                      "Spec is where a server is and how requests are sent to it. Either endpoints or service is set.",
		"endpoints":             "endpoints are the addresses of the server, 256 at most.",
		"service":               "service names a Service in the core server; its ready addresses are the endpoints. An APIService that names the same Service and port is served under the policy of this Backend; of several Backends, the first by name.",
		"tls":                   "tls is how endpoints are verified, and the certificate shown to them. For https endpoints and services only. Default: the CAs of the gateway's host, and the gateway's front-proxy certificate; with a service that an APIService names as well, the caBundle or insecureSkipTLSVerify of that APIService, of several the first by name.",
		"autoRegister":          "autoRegister makes APIServices for API groups that the server lists. They are deleted with the Backend. Without it, only APIServices of users lead to the server, by their annotation gateway.portico.dev/backend.",
		"rest":                  "rest makes an API of a server without Kubernetes discovery that has an OpenAPI 3 document. Not together with autoRegister, and not for a Backend that the gateway starts with.",
		"balance":               "balance is the load balancing policy. LeastRequest chooses, of two random endpoints, the one with fewer requests in flight for its weight; RoundRobin chooses in turn, by weight; ConsistentHash sends a user to the same endpoint while it is healthy, without slowStart. Default LeastRequest.",
		"healthCheck":           "healthCheck is the active check of each endpoint.",
		"outlierDetection":      "outlierDetection ejects endpoints by the results of requests to them. It never ejects the last one.",
		"slowStart":             "slowStart increases gradually the share of requests of an endpoint that comes back, or is added beside others.",
		"panicThresholdPercent": "panicThresholdPercent: while fewer than this share of the endpoints get requests, ejections are ignored, so that the others are not overloaded. Endpoints that fail their active checks stay out. 0 turns it off. Default 50.",
		"timeouts":              "timeouts limit one attempt to send a request.",
		"retries":               "retries limit the load that retries add. A request of which the server saw nothing is retried on another endpoint whatever its verb; a safe request also if the connection broke, or if the answer was 502, 503, 504, or 429 with Retry-After. Nothing is retried after a part of the answer was sent to the client.",
		"limits":                "limits bound requests in flight to the server, without long-running ones such as watches. Each gateway counts for itself.",
	}
}

// OpenAPIModelName names the schema.
func (Endpoint) OpenAPIModelName() string { return models + "BackendEndpoint" }

// SwaggerDoc describes the fields.
func (Endpoint) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "Endpoint is one address of a server.",
		"url":    "url is https://host:port, unix:///path of a socket, or http://host:port (plain text, only without tls; for REST servers, since a server reached by http cannot verify who a user is). The default port is 443, or 80 for http. A host name is resolved for every connection; all of its addresses are one endpoint with one state.",
		"weight": "weight is the endpoint's share of requests, 0 to 1000. 0 drains it: it gets no new requests, requests in flight finish, and its watches are ended one after the other within 30s if another endpoint can take them. Default 1.",
	}
}

// OpenAPIModelName names the schema.
func (Service) OpenAPIModelName() string { return models + "BackendService" }

// SwaggerDoc describes the fields.
func (Service) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "Service names a Service in the core server.",
		"namespace": "namespace of the Service.",
		"name":      "name of the Service.",
		"port":      "port is the port number of the Service. Default 443.",
	}
}

// OpenAPIModelName names the schema.
func (TLS) OpenAPIModelName() string { return models + "BackendTLS" }

// SwaggerDoc describes the fields.
func (TLS) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "TLS is how endpoints are verified, and the certificate shown to them.",
		"caBundle":           "caBundle is PEM of the CAs of the endpoints' certificates. Default: the CAs of the gateway's host.",
		"serverName":         "serverName is the name in the endpoints' certificates. Default: the host of each endpoint's URL; for a service, name.namespace.svc.",
		"insecureSkipVerify": "insecureSkipVerify accepts any certificate. Not together with caBundle.",
		"clientCertificate":  "clientCertificate is the certificate that the gateway shows: FrontProxy, its own, by which a server trusts it to name users, or None. With FrontProxy the gateway reconnects every 10 seconds to 2 minutes to a server that does not request a certificate, in case the server starts to. Default FrontProxy.",
	}
}

// OpenAPIModelName names the schema.
func (AutoRegister) OpenAPIModelName() string { return models + "BackendAutoRegister" }

// SwaggerDoc describes the fields.
func (AutoRegister) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                     "AutoRegister makes APIServices for what the server lists.",
		"groups":               "groups are the API groups to register, each as GROUP or, for a single version, GROUP/VERSION; \"*\" alone registers all.",
		"groupPriorityMinimum": "groupPriorityMinimum of the APIServices, 1 to 20000: higher ones come first in discovery. Groups of Kubernetes itself keep their fixed place. Default 1000.",
		"versionPriority":      "versionPriority of the APIServices, 1 to 1000: higher ones come first in their group. Default 15.",
		"onConflict":           "onConflict is what happens if another Backend serves a group/version already. Keep leaves it there, and the condition Registered names it; Replace takes it from a Backend of a lower groupPriorityMinimum, or of the same one that says Keep. An APIService of a user, and any version of a group of the gateway itself, is never taken. Default Keep.",
	}
}

// OpenAPIModelName names the schema.
func (REST) OpenAPIModelName() string { return models + "BackendREST" }

// SwaggerDoc describes the fields.
func (REST) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "REST makes an API of a server without Kubernetes discovery that has an OpenAPI 3 document.",
		"group":        "group that the server is registered under.",
		"version":      "version that the server is registered under.",
		"openAPIPath":  "openAPIPath is the path of the server's OpenAPI 3 document, in JSON. The document is requested every five seconds if the server answers with ETag or Last-Modified, else once a minute or when its length changed. Default /openapi.json.",
		"pathPrefix":   "pathPrefix replaces /apis/GROUP/VERSION in requests. Default: the path of the first server that the document names, mostly none: /apis/GROUP/VERSION/pets is requested as /pets. / is none, whatever the document says.",
		"allowAnyBody": "allowAnyBody passes every request body to the server. It is for a server that ignores method overrides in bodies (_method), since requests are authorized by their own method. Default false: forms (application/x-www-form-urlencoded, multipart) and bodies with a Content-Encoding or in a charset that is not based on ASCII are refused with 415, and JSON objects with the member _method with 400.",
	}
}

// OpenAPIModelName names the schema.
func (HealthCheck) OpenAPIModelName() string { return models + "BackendHealthCheck" }

// SwaggerDoc describes the fields.
func (HealthCheck) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "HealthCheck is the active check of each endpoint.",
		"path":     "path of the check's GET; an answer of 2xx is healthy. Default: the server's discovery; for a REST server, its OpenAPI document.",
		"interval": "interval between checks of a healthy endpoint, at least 100ms. A suspect one is checked ten times as often. The server's discovery is read as often, but every 500ms at most. Default 5s.",
		"timeout":  "time until the header of a check's answer must have arrived; the body of a discovery document may take 10s. Default 1s.",
		"fall":     "fall is how many failures in a row take an endpoint out, 1 to 1000. A refused connection does so alone. Default 3.",
		"rise":     "rise is how many successes in a row bring an endpoint back, 1 to 1000. Default 2.",
	}
}

// OpenAPIModelName names the schema.
func (OutlierDetection) OpenAPIModelName() string { return models + "BackendOutlierDetection" }

// SwaggerDoc describes the fields.
func (OutlierDetection) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                       "OutlierDetection ejects endpoints by the results of requests to them.",
		"consecutiveErrors":      "consecutiveErrors is how many 5xx answers of the server in a row, or answers that do not begin within responseHeader, eject an endpoint. 0 turns this off. Default 5.",
		"consecutiveLocalErrors": "consecutiveLocalErrors is how many connections in a row that failed or broke eject an endpoint. 0 turns this off. Default 3.",
		"baseEjectionTime":       "baseEjectionTime, times the number of recent ejections, is how long an endpoint is out, plus up to a tenth at random. Each 10s without an ejection reduce the number by one. A passed check ends an ejection for connections that failed or broke, if it was the only recent one. Default 30s.",
		"maxEjectionTime":        "maxEjectionTime is the longest ejection. Default 300s.",
		"maxEjectionPercent":     "maxEjectionPercent of the endpoints may be ejected at a time. Default 50.",
	}
}

// OpenAPIModelName names the schema.
func (SlowStart) OpenAPIModelName() string { return models + "BackendSlowStart" }

// SwaggerDoc describes the fields.
func (SlowStart) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                  "SlowStart increases gradually the share of requests of an endpoint that comes back, or is added beside others that get requests. It does not apply to ConsistentHash.",
		"window":            "window is the time until the endpoint has its whole share. 0s turns slow start off. Default 10s.",
		"minWeightPercent":  "minWeightPercent is the share at the beginning, as a percentage of the weight, 1 to 100. Default 10.",
		"aggressionPercent": "aggressionPercent is the shape of the growth, 10 to 1000: linear at 100, faster at the beginning above, at the end below. The share is the part of the window that has passed, to the power of 100/aggressionPercent. Default 100.",
	}
}

// OpenAPIModelName names the schema.
func (Timeouts) OpenAPIModelName() string { return models + "BackendTimeouts" }

// SwaggerDoc describes the fields.
func (Timeouts) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "Timeouts limit one attempt to send a request.",
		"connect":          "connect limits making a connection, TLS included. Default 1s.",
		"responseHeader":   "responseHeader limits the time from the end of the request to the header of the answer. Then the attempt fails, and a safe request is tried on another endpoint if its own time is not over. The default equals the time of a request, so that there is no second attempt and the client gets 504; a shorter one leaves time for it. Long-running requests are not limited. Default 60s.",
		"idle":             "idle is how long unused connections are kept. Default 90s.",
		"maxConnectionAge": "maxConnectionAge is how long a connection takes new requests, up to a tenth less at random; requests in flight on it finish. So servers behind one address get their share of later requests. 0 is unlimited, otherwise at least 1s. Default 10m.",
	}
}

// OpenAPIModelName names the schema.
func (Retries) OpenAPIModelName() string { return models + "BackendRetries" }

// SwaggerDoc describes the fields.
func (Retries) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "Retries limits the load that retries add.",
		"budgetPercent": "budgetPercent is the share of the requests of the last ten seconds that may be retries. 0, with minPerSecond 0, turns retries off. Default 20.",
		"minPerSecond":  "minPerSecond retries are allowed in any case. Default 3.",
		"attempts":      "attempts for one request, the first included, 1 to 10. With 1, nothing is retried that the server may have seen. Default 3.",
	}
}

// OpenAPIModelName names the schema.
func (Limits) OpenAPIModelName() string { return models + "BackendLimits" }

// SwaggerDoc describes the fields.
func (Limits) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "Limits bounds requests in flight to a server.",
		"concurrent": "concurrent requests that each gateway sends at most. Default 1024.",
		"queue":      "queue is how many more requests wait. Further ones are answered 429 with Retry-After. Default 256.",
	}
}

// OpenAPIModelName names the schema.
func (Status) OpenAPIModelName() string { return models + "BackendStatus" }

// SwaggerDoc describes the fields.
func (Status) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "Status is what the elected gateway sees of a server.",
		"endpoints":     "endpoints and their state.",
		"groupVersions": "groupVersions that the server lists.",
		"conditions":    "conditions: Available (an endpoint takes requests), Discovered (the server's discovery was read), OpenAPIValid (its OpenAPI documents can be used), Registered (all groups of autoRegister lead to this Backend).",
	}
}

// OpenAPIModelName names the schema.
func (EndpointStatus) OpenAPIModelName() string { return models + "BackendEndpointStatus" }

// SwaggerDoc describes the fields.
func (EndpointStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "EndpointStatus is the state of one endpoint.",
		"url":                "url of the endpoint.",
		"state":              "state is Unknown (not checked yet), Healthy (gets requests), Unhealthy (failed its checks), Ejected (by the results of requests) or Draining (weight 0).",
		"lastTransitionTime": "lastTransitionTime is when the state changed last.",
		"lastError":          "lastError is why the endpoint is not healthy, or was not the last time.",
	}
}

// OpenAPIModelName names the schema.
func (GroupVersionStatus) OpenAPIModelName() string { return models + "BackendGroupVersionStatus" }

// SwaggerDoc describes the fields.
func (GroupVersionStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "GroupVersionStatus is a group/version that a server lists.",
		"group":     "group; \"\" is the core group.",
		"version":   "version of the group.",
		"freshness": "freshness is Current or Stale, as in aggregated discovery.",
	}
}

package backend

// What kubectl explain says of the kind, by the name of each field in JSON; ""
// is the type itself. The schemas have names of the kind's group, not of the
// folder it is kept in.

const models = "dev.portico.gateway." + Version + "."

// OpenAPIModelName names the schema.
func (Backend) OpenAPIModelName() string { return models + "Backend" }

// SwaggerDoc describes the fields.
func (Backend) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "Backend is a server behind the gateway: one or more endpoints that answer alike, how they are trusted, which of their API groups are taken, and how requests are sent to them. Who may write Backends may do anything in the cluster, because the gateway speaks for its users to whatever address they name: the right belongs with cluster-admin.",
		"metadata": "Standard object's metadata. Backends have no namespace. By its name a Backend answers for an APIService of a user: one without spec.service that names it in its annotation gateway.portico.dev/backend.",
		"spec":     "spec says where the server is and how requests are sent to it.",
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
		"":                      "Spec says where a server is and how requests are sent to it. Either endpoints or service must be set.",
		"endpoints":             "endpoints are the addresses of the server, 256 at most.",
		"service":               "service names a Service in the core server; its ready endpoints are those of the Backend. An APIService that names the same Service and port is served by this Backend, under its policy; where several Backends name it, by the first by name.",
		"tls":                   "tls says how endpoints are recognised and what is shown to them. Only for https endpoints and services. Default: certificates must be vouched for by the CAs of the gateway's host, and the gateway shows its front-proxy certificate; with a service that an APIService names, too, the caBundle or insecureSkipTLSVerify of that, of several the first by name.",
		"autoRegister":          "autoRegister has APIServices made for the API groups that the server says it serves. They go when the Backend goes. Without it, only APIServices of users lead to the server: those that name the Backend in their annotation gateway.portico.dev/backend.",
		"rest":                  "rest makes an API of a server that has no Kubernetes discovery but an OpenAPI 3 document. Not together with autoRegister, and not of a server that the gateway starts with.",
		"balance":               "balance is how requests are spread over the healthy endpoints. LeastRequest takes the one of two random endpoints that has fewer requests under way for its weight; RoundRobin takes them in turn, by weight; ConsistentHash sends a user to the same endpoint while that is healthy, and each endpoint has as many users as its weight says; slowStart does not apply. Default LeastRequest.",
		"healthCheck":           "healthCheck is the active check of each endpoint.",
		"outlierDetection":      "outlierDetection ejects endpoints by how requests to them end. It never ejects the last one.",
		"slowStart":             "slowStart has the share of requests grow slowly of an endpoint that comes back, or is new beside others.",
		"panicThresholdPercent": "panicThresholdPercent: while fewer than this share of the endpoints get requests, ejections are ignored, because the few that are left would only be overrun. Endpoints that fail their active checks stay out. 0 turns it off. Default 50.",
		"timeouts":              "timeouts bound one attempt to send a request.",
		"retries":               "retries bound how much load retries may add. A request of which nothing was sent is retried on another endpoint whatever its verb; a safe one also after the connection broke or the answer was 502, 503, 504, or 429 with Retry-After: that an endpoint has too much to do says nothing of the others. Nothing is retried once a part of the answer was sent to the client.",
		"limits":                "limits bound what is under way to the server, long-running requests such as watches not counted. Each gateway counts for itself.",
	}
}

// OpenAPIModelName names the schema.
func (Endpoint) OpenAPIModelName() string { return models + "BackendEndpoint" }

// SwaggerDoc describes the fields.
func (Endpoint) SwaggerDoc() map[string]string {
	return map[string]string{
		"":       "Endpoint is one address of a server.",
		"url":    "url is https://host:port, http://host:port (plain text, only where tls is not set; meant for REST servers, since any other cannot know then that users are who the gateway says they are) or unix:///path of a socket. Without a port it is 443, or 80 for http. A host's name is looked up for every connection. Its addresses are tried in the order of the resolver, IPv6 and IPv4 concurrently where it has both (RFC 6555); they are one endpoint, with one state.",
		"weight": "weight is the endpoint's share of the requests, 0 to 1000. With 0 it drains: it gets no new requests, what is under way finishes, and its watches are ended in order within 30s, one after the other, for their clients to go on at another endpoint; if there is none that gets requests, they stay. Default 1.",
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
		"port":      "port is the Service's port number. Default 443.",
	}
}

// OpenAPIModelName names the schema.
func (TLS) OpenAPIModelName() string { return models + "BackendTLS" }

// SwaggerDoc describes the fields.
func (TLS) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "TLS says how endpoints are recognised and what is shown to them.",
		"caBundle":           "caBundle is PEM of the CAs that vouch for the endpoints' certificates. Default: the CAs of the gateway's host.",
		"serverName":         "serverName is the name that certificates must have. Default: the host of each endpoint's URL; for a service, name.namespace.svc.",
		"insecureSkipVerify": "insecureSkipVerify trusts whoever answers. Not together with caBundle.",
		"clientCertificate":  "clientCertificate is which certificate the gateway shows: FrontProxy (its own, which lets it speak for users) or None. A server that does not ask for it is connected to anew every 10 seconds to 2 minutes, in case that it learns to ask; with None it is not. Default FrontProxy.",
	}
}

// OpenAPIModelName names the schema.
func (AutoRegister) OpenAPIModelName() string { return models + "BackendAutoRegister" }

// SwaggerDoc describes the fields.
func (AutoRegister) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                     "AutoRegister has APIServices made for what the server says it serves.",
		"groups":               "groups are the API groups to take, each as GROUP or, for a single version, GROUP/VERSION; \"*\" alone takes all.",
		"groupPriorityMinimum": "groupPriorityMinimum of the APIServices, 1 to 20000: groups of a higher one come first in discovery. Groups of Kubernetes itself keep their fixed place. Default 1000.",
		"versionPriority":      "versionPriority of the APIServices, 1 to 1000: in a group, versions of a higher one come first. Default 15.",
		"onConflict":           "onConflict says what happens where another Backend serves a group and version already. Keep leaves it there, and the condition Registered says so; Replace takes it over from a Backend of a lower groupPriorityMinimum, or of the same that says Keep. What a user registered, and any version of a group that the gateway itself serves, is never taken over. Versions of one group that several Backends serve are in the order of their priorities. Default Keep.",
	}
}

// OpenAPIModelName names the schema.
func (REST) OpenAPIModelName() string { return models + "BackendREST" }

// SwaggerDoc describes the fields.
func (REST) SwaggerDoc() map[string]string {
	return map[string]string{
		"":             "REST makes an API of a server that has no Kubernetes discovery but an OpenAPI 3 document.",
		"group":        "group that the server is registered under.",
		"version":      "version that the server is registered under.",
		"openAPIPath":  "openAPIPath is where the server has its OpenAPI 3 document, which must be JSON; YAML is not read. It is asked for every five seconds if the server answers with an ETag or Last-Modified, else once a minute or when its length changed. Default /openapi.json.",
		"pathPrefix":   "pathPrefix takes the place of /apis/GROUP/VERSION in requests. Default: the path of the first server that the document names, which mostly is none: /apis/GROUP/VERSION/pets is asked for as /pets. / is none, whatever the document says.",
		"allowAnyBody": "allowAnyBody passes every request body to the server. It is for a server that does not take the method of a request out of its body, as many frameworks do (_method): authorization goes by the method of the request itself. Default false: forms (application/x-www-form-urlencoded, multipart) and bodies with a Content-Encoding or in a charset that is not based on ASCII are refused with 415, and JSON objects with the member _method with 400.",
	}
}

// OpenAPIModelName names the schema.
func (HealthCheck) OpenAPIModelName() string { return models + "BackendHealthCheck" }

// SwaggerDoc describes the fields.
func (HealthCheck) SwaggerDoc() map[string]string {
	return map[string]string{
		"":         "HealthCheck is the active check of each endpoint.",
		"path":     "path that is asked for with GET; an answer of 2xx is healthy. Default: the discovery that the gateway needs anyway; for a REST server, its OpenAPI document.",
		"interval": "interval between checks of a healthy endpoint, at least 100ms. One that is suspect is checked ten times as often. The server's discovery is asked for as often, but every 500ms at most. Default 5s.",
		"timeout":  "timeout of one check. Default 1s.",
		"fall":     "fall is how many failures in a row take an endpoint out, 1 to 1000. A refused connection does so alone. Default 3.",
		"rise":     "rise is how many successes in a row bring an endpoint back, 1 to 1000. Default 2.",
	}
}

// OpenAPIModelName names the schema.
func (OutlierDetection) OpenAPIModelName() string { return models + "BackendOutlierDetection" }

// SwaggerDoc describes the fields.
func (OutlierDetection) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                       "OutlierDetection ejects endpoints by how requests to them end.",
		"consecutiveErrors":      "consecutiveErrors is how many failing answers in a row (5xx that the server itself made) eject an endpoint; one that does not begin within responseHeader counts. 0 turns this off. Default 5.",
		"consecutiveLocalErrors": "consecutiveLocalErrors is how many failures in a row to connect, or connections that broke, eject an endpoint. So do as many reads of objects that were not answered within their time (or 5s, if the client gave up) if another endpoint answered the very same as often, ten times as soon, and the endpoint nothing meanwhile; what is slow on all endpoints ejects none. 0 turns this off. Default 3.",
		"baseEjectionTime":       "baseEjectionTime, times how often it was ejected lately, is how long an endpoint is out; up to a tenth of it is added, at random. Each 10s without an ejection take one back. A passed check ends an ejection for connections that failed or broke, if it was the only one lately. Default 30s.",
		"maxEjectionTime":        "maxEjectionTime bounds how long an endpoint is ejected. Default 300s.",
		"maxEjectionPercent":     "maxEjectionPercent of the endpoints may be ejected at a time. Default 50.",
	}
}

// OpenAPIModelName names the schema.
func (SlowStart) OpenAPIModelName() string { return models + "BackendSlowStart" }

// SwaggerDoc describes the fields.
func (SlowStart) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                  "SlowStart has the share of requests grow slowly of an endpoint that comes back, or is new beside others that get requests. Under ConsistentHash it does nothing.",
		"window":            "window is how long it takes until the endpoint has all of its share. 0s turns slow start off. Default 10s.",
		"minWeightPercent":  "minWeightPercent of its weight is what an endpoint begins with, 1 to 100. Default 10.",
		"aggressionPercent": "aggressionPercent bends the growth, 10 to 1000: at 100 it is even, with more it is faster at the beginning, with less at the end. The share is the part of the window that has passed, to the power of 100/aggressionPercent. Default 100.",
	}
}

// OpenAPIModelName names the schema.
func (Timeouts) OpenAPIModelName() string { return models + "BackendTimeouts" }

// SwaggerDoc describes the fields.
func (Timeouts) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                 "Timeouts bound one attempt to send a request.",
		"connect":          "connect bounds making a connection, TLS included. Default 1s.",
		"responseHeader":   "responseHeader bounds how long the server takes to begin its answer once the request is sent. Then the attempt is given up (consecutiveLocalErrors says when that counts against the endpoint), and a safe request is tried on another one if its own time is not over: with the default, which is as long as the gateway gives requests, it is, and the client is answered 504. A shorter one leaves time for that. Long-running requests are not bounded. Default 60s.",
		"idle":             "idle is how long connections that are not used are kept. Default 90s.",
		"maxConnectionAge": "maxConnectionAge is how long a connection takes new requests, up to a tenth less at random; those under way on it finish. What stands behind one address gets its share of later requests so. 0 is as long as it lasts, otherwise at least 1s. Default 10m.",
	}
}

// OpenAPIModelName names the schema.
func (Retries) OpenAPIModelName() string { return models + "BackendRetries" }

// SwaggerDoc describes the fields.
func (Retries) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "Retries bounds how much load retries may add.",
		"budgetPercent": "budgetPercent of the requests of the last ten seconds may be retries. 0, with minPerSecond 0, turns retries off. Default 20.",
		"minPerSecond":  "minPerSecond retries are allowed whatever the traffic. Default 3.",
		"attempts":      "attempts for one request in all, the first included, 1 to 10: with 1 nothing is tried again that the server may have seen. Default 3.",
	}
}

// OpenAPIModelName names the schema.
func (Limits) OpenAPIModelName() string { return models + "BackendLimits" }

// SwaggerDoc describes the fields.
func (Limits) SwaggerDoc() map[string]string {
	return map[string]string{
		"":           "Limits bounds what is under way to a server.",
		"concurrent": "concurrent requests that each gateway sends at most. Default 1024.",
		"queue":      "queue is how many more requests wait for their turn. What comes then is answered 429 with Retry-After. Default 256.",
	}
}

// OpenAPIModelName names the schema.
func (Status) OpenAPIModelName() string { return models + "BackendStatus" }

// SwaggerDoc describes the fields.
func (Status) SwaggerDoc() map[string]string {
	return map[string]string{
		"":              "Status is what the elected gateway sees of a server.",
		"endpoints":     "endpoints and their state.",
		"groupVersions": "groupVersions that the server says it serves.",
		"conditions":    "conditions: Available (an endpoint can be sent requests), Discovered (what the server serves was read), OpenAPIValid (its OpenAPI documents can be used), Registered (every group it shall have is its own).",
	}
}

// OpenAPIModelName names the schema.
func (EndpointStatus) OpenAPIModelName() string { return models + "BackendEndpointStatus" }

// SwaggerDoc describes the fields.
func (EndpointStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":                   "EndpointStatus is the state of one endpoint.",
		"url":                "url of the endpoint.",
		"state":              "state is Unknown (not checked yet), Healthy (gets requests), Unhealthy (failed its checks), Ejected (by how requests to it ended) or Draining (weight 0).",
		"lastTransitionTime": "lastTransitionTime is when state changed last.",
		"lastError":          "lastError is why the endpoint is not healthy, or was not the last time.",
	}
}

// OpenAPIModelName names the schema.
func (GroupVersionStatus) OpenAPIModelName() string { return models + "BackendGroupVersionStatus" }

// SwaggerDoc describes the fields.
func (GroupVersionStatus) SwaggerDoc() map[string]string {
	return map[string]string{
		"":          "GroupVersionStatus is a group and version that a server says it serves.",
		"group":     "group; \"\" is the core group.",
		"version":   "version of the group.",
		"freshness": "freshness is Current or Stale, as in aggregated discovery: what is known of a server that went away becomes stale after a while.",
	}
}

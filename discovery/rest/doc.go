// Package rest derives an API from the OpenAPI 3 document of a REST server, which has no Kubernetes
// discovery: the resources of /apis/G/V ([Derive]) and the document at /openapi/v3/apis/G/V. It sends
// no requests.
//
//   - A path is a resource by the rule that authorizes requests (resource.ParseAction): the first
//     segment is the resource, the second an object, the third a subresource. Discovery lists what
//     roles have to name, with the verbs of authorization: GET /pets is list, DELETE /pets is
//     deletecollection, and everything below /pets/{id}/toys belongs to pets/toys.
//   - An invalid name leaves a path out, with a reason; names are not changed. Requests to such a
//     path are authorized by the path.
//   - Resources are not namespaced and have no watch.
//   - Kinds are named after the schemas of responses, for kubectl explain, or after the resource.
//   - The published document has only known fields: documents of OpenAPI 3.1 have schemas that
//     readers of 3.0 reject. Known are the fields of parameters, bodies, responses, headers, examples and
//     schemas; a closed object (additionalProperties: false) is published as open. Servers, security,
//     links and callbacks are left out: they describe ways around the gateway.
//   - Documents are JSON: small YAML documents can expand to large ones by aliases.
//   - Documents are not trusted: their size, depth and number of values and resources are bounded,
//     and references are followed a few steps.
//
// Runs in: gateway.
package rest

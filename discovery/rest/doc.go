// Package rest derives an API from the OpenAPI 3 document of a REST server, which has no
// Kubernetes discovery: what /apis/G/V says ([Derive]), and the document at
// /openapi/v3/apis/G/V. It sends no requests.
//
// Decisions that shaped it:
//
//   - A path is a resource by the same rule that authorizes requests
//     (resource.ParseAction): the first segment names the resource, the second
//     an object, the third a subresource. What discovery lists is therefore what
//     a role has to name, and the verbs are those that authorization will ask
//     about: GET /pets is list, DELETE /pets is deletecollection, anything
//     below /pets/{id}/toys belongs to pets/toys.
//   - Names are taken as they are, or left out with a reason: a made-over name
//     would be in no request, and a role that has it would allow nothing. What is
//     left out is still reached, and still authorized, by its path.
//   - Nothing is namespaced, and nothing claims watch: no REST server has it as
//     Kubernetes clients mean it.
//   - Kinds are named after the schemas that the server answers with, so that
//     kubectl explain has something to show; without one, after the resource.
//   - Only what is understood is published. Documents of 3.1 hold schemas that
//     readers of 3.0 stumble over, and a document may hold anything: it is read
//     into a fixed set of fields, and what fits none of them is gone.
//   - JSON only. Servers that make their documents offer them as JSON, and
//     aliases let a small YAML document unfold into a large one.
//   - Documents are not trusted: their size, depth, number of values and of
//     resources are bounded before anything is made of them, references are
//     never unfolded, and a cycle of them is only followed a few steps.
//
// Runs in: gateway.
package rest

// Package render converts the JSON of objects to the forms that clients ask for: indented
// JSON, YAML, and the protobuf envelope.
//
// Runs in: gateway, core, crd.
package render

// Package generated tests that generated files are up to date. openapi-gen, of the go.mod of
// cmd/tools, generates the OpenAPI definitions of Backend.
//
// Runs in: go test.
package generated

// Package cli holds what commands share: checks of their arguments, and how they print tables,
// JSON and YAML.
//
// Runs in: portico, all commands.
package cli

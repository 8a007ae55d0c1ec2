// Package config sets the flags of processes that are not on the command line: from environment
// variables (PORTICO_ and the name of the flag), else from a configuration file, which is read
// again when it changes. It also has the command portico config.
//
// Runs in: all processes.
package config

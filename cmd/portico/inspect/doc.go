// Package inspect reads the state of an installation: its data folder, its processes, and what
// a gateway tells of itself and of what is behind it.
//
// Runs in: portico status, logs and doctor.
package inspect

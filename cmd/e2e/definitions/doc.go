// Package definitions tests CustomResourceDefinitions in installations: that change or are deleted under load, that come and
// go by the thousand, and that are built to do harm.
//
// Runs in: tests.
package definitions

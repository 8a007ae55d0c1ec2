// Package registration has the commands that register servers with a gateway and show what is
// behind it: portico register, unregister, backends, routes and explain-route.
//
// Runs in: portico register, unregister, backends, routes and explain-route.
package registration

// Package netround tells when Go's runtime has asked the network for news. The
// runtime goes round: it runs what can run, and only then, on each processor, asks the
// kernel what has come for those who wait. How long a round takes is how late a process
// learns of what has come; and who waits for a round lets everything else go first.
//
// It needs nothing of the runtime that is not public: whoever waits for a descriptor
// that has just become ready goes on when the runtime has asked the kernel.
//
// Runs in: gateway.
package netround

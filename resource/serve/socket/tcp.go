package socket

import (
	"context"
	"net"
)

// ListenTCP binds a host:port. With share other processes of the same user may bind it too, if they share it as
// well: the kernel chooses one of them for each connection. An error where the system has no SO_REUSEPORT.
func ListenTCP(address string, share bool) (net.Listener, error) {
	var config net.ListenConfig
	if share {
		config.Control = sharePort
	}
	return config.Listen(context.Background(), "tcp", address)
}

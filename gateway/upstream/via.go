package upstream

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HeaderVia lists the gateways that a request has passed: their ids in order,
// separated by commas. It detects loops, as Via (RFC 9110, 7.6.3) and CDN-Loop
// (RFC 8586) do; unlike Via no other proxy writes it, and unlike both its entries
// are random, so that two gateways never have the same.
const HeaderVia = "X-Portico-Via"

// maxGateways bounds the gateways that a request passes. It ends loops in which no
// gateway sees its own id, because another one in the loop removes it.
const maxGateways = 8

// reasonLoop is the reason of the Status with code 508 (RFC 5842, 7.2).
const reasonLoop metav1.StatusReason = "LoopDetected"

// removedID replaces an id from a client that is no front proxy.
const removedID = "-"

// Via detects requests that return to the gateway that sent them. Each gateway has
// one of its own. Safe for concurrent use; a nil Via adds nothing.
type Via struct {
	id string
	// alone is the header of a request that has passed no other gateway; it is
	// shared by all of them.
	alone []string
}

// NewVia returns a Via with a new random id.
func NewVia() *Via {
	id := rand.Text()
	return &Via{id: id, alone: []string{id}}
}

// Admit returns a Status error with code 508 for a request that has passed this
// gateway before, or maxGateways of any kind; nil for all others. Whether the client
// is a front proxy does not matter for that: a loop may lead through a connection
// without the gateway's certificate. The ids from a client that is no front proxy
// are removed from h, and only their number is kept.
func (v *Via) Admit(h http.Header, isFrontProxy func() bool) error {
	values := h[HeaderVia]
	if len(values) == 0 {
		return nil
	}
	list := strings.Join(values, ",")
	passed := strings.Count(list, ",") + 1
	if passed >= maxGateways {
		return loopError(fmt.Sprintf("the request has passed %d gateways, and at most %d are permitted: it is in a loop", passed, maxGateways))
	}
	for id := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(id) == v.id {
			return loopError("the request has returned to this gateway: the server that it was sent to leads back here")
		}
	}
	if !isFrontProxy() {
		h[HeaderVia] = []string{removedID + strings.Repeat(", "+removedID, passed-1)}
	}
	return nil
}

// add adds the gateway's id to the header of a request that it sends.
func (v *Via) add(h http.Header) {
	if v == nil {
		return
	}
	prior := h[HeaderVia]
	if len(prior) == 0 {
		h[HeaderVia] = v.alone
		return
	}
	h[HeaderVia] = []string{strings.Join(prior, ", ") + ", " + v.id}
}

func loopError(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusLoopDetected, Reason: reasonLoop, Message: message,
	}}
}

package admission

import (
	"fmt"
	"io"
	"net/http"

	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// maxWebhookAnswer bounds the answer of a webhook, in bytes. A JSON patch that
// replaces the largest object takes 4 MiB in base64.
const maxWebhookAnswer = 8 << 20

// boundAnswers returns a resolver whose clients fail on answers of more than
// maxWebhookAnswer bytes. The failure policy of the webhook decides what follows.
func boundAnswers(r webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
	bound := func(cfg *rest.Config, err error) (*rest.Config, error) {
		if err != nil {
			return nil, err
		}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return answerBound{next} })
		return cfg, nil
	}
	return &webhookutil.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return bound(r.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return bound(r.ClientConfigForService(name, namespace, port))
		},
	}
}

// answerBound is a transport whose answers end with an error beyond maxWebhookAnswer.
type answerBound struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b answerBound) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = &boundedBody{ReadCloser: res.Body, left: maxWebhookAnswer}
	}
	return res, err
}

// boundedBody fails after so many bytes.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxWebhookAnswer)
	}
	return n, err
}

package proxy

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/gateway/upstream"
)

// A server that has too much to do says so: 429, with the time to come back.
func TestTooMany(t *testing.T) {
	hang, arrived := make(chan struct{}), make(chan struct{}, 10)
	f := startFront(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-hang
	})
	p := upstream.NewPolicy(&backend.Spec{})
	p.Concurrent, p.Queue = 1, 0
	f.up.SetPolicy(p)
	first := make(chan int)
	go func() {
		req, _ := http.NewRequest("GET", f.URL+"/apis/g.example.com/v1/things", nil)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			first <- 0
			return
		}
		res.Body.Close()
		first <- res.StatusCode
	}()
	<-arrived
	res := f.do(t, "GET", "/apis/g.example.com/v1/things", nil, nil)
	if s := statusOf(t, res); res.StatusCode != 429 || s.Reason != metav1.StatusReasonTooManyRequests || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %v %+v", res.StatusCode, res.Header, s)
	}
	close(hang)
	if code := <-first; code != 200 {
		t.Errorf("the one before: %d", code)
	}
}

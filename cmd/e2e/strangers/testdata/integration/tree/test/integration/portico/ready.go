package portico

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// loopback returns the configuration of a client, as of kube-apiserver's loopback client. certFile has the certificate of
// the server and of its CA.
func loopback(address, token, certFile string) (*rest.Config, error) {
	ca, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	config := &rest.Config{
		Host: "https://" + address, BearerToken: token, QPS: -1, DisableCompression: true,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return config, nil
}

// ready waits until the server serves. It waits for /readyz/writes because kube-apiserver makes each write wait for
// admission.
func (s *Server) ready(skipHealth bool) error {
	paths := []string{"/api/v1/namespaces/default"}
	if !skipHealth {
		paths = []string{"/healthz", "/readyz", "/readyz/writes", "/api/v1/namespaces/kube-system", paths[0], "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=1"}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.Config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	deadline := time.Now().Add(patience)
	for _, path := range paths {
		for {
			err := s.get(client, path)
			if err == nil {
				break
			}
			if err := s.exited(); err != nil {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("not ready within %v: %w", patience, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// get returns an error unless the answer to a GET is 200.
func (s *Server) get(client *http.Client, path string) error {
	r, err := http.NewRequest(http.MethodGet, s.Config.Host+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.Config.BearerToken)
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return err
}

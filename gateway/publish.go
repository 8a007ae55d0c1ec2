package gateway

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/client"
	"portico/resource/loop"
)

// publishInterval is the interval at which the published trust is checked, as of
// upstream's controller.
const publishInterval = time.Minute

// publisher maintains ConfigMap kube-system/extension-apiserver-authentication, from which
// registered servers read the CAs of clients and of front proxies, and the identity
// headers.
type publisher struct {
	core         *coreClient
	clientCAFile string
	proxyCAFile  string
	proxyNames   []string
	log          *slog.Logger
	published    atomic.Bool // publish has succeeded since the start
}

func (p *publisher) run(ctx context.Context) error {
	tick := time.NewTicker(publishInterval)
	defer tick.Stop()
	var wake loop.Signal
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, path := range []string{p.clientCAFile, p.proxyCAFile} {
		if path != "" {
			wg.Go(func() { _ = authn.FollowFile(ctx, path, nil, func([]byte) { wake.Set() }) }) // it ends with ctx
		}
	}
	for {
		err := loop.Retry(ctx, loop.Backoff{Max: maxFollowPause}, func(ctx context.Context) error {
			err := p.publish(ctx)
			if err == nil {
				p.published.Store(true)
			}
			if err != nil && ctx.Err() == nil {
				p.log.Debug("publishing extension-apiserver-authentication failed", "err", err)
			}
			return err
		})
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-wake.C():
		}
	}
}

// publish writes the ConfigMap if something is missing. It keeps keys of others and the
// values of other gateways, which may have another CA while one is replaced. A conflict is
// an error, after which run repeats it.
func (p *publisher) publish(ctx context.Context) error {
	want, err := p.data()
	if err != nil {
		return err
	}
	key := resource.Key{Namespace: "kube-system", Name: "extension-apiserver-authentication"}
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
	}
	configMaps := p.core.store("", "configmaps", "ConfigMap")
	method, path := http.MethodPut, client.Path(configMaps.Info(), key.Namespace, key.Name)
	cur, err := configMaps.Get(ctx, key, resource.At{})
	switch {
	case apierrors.IsNotFound(err):
		method, path = http.MethodPost, client.Path(configMaps.Info(), key.Namespace, "")
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(cur.Data, cm); err != nil {
			return fmt.Errorf("decode ConfigMap %s: %w", key, err)
		}
		cm.ResourceVersion = strconv.FormatInt(cur.Revision, 10)
	}
	old := maps.Clone(cm.Data)
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	for key, value := range want {
		if cm.Data[key], err = merged(key, cm.Data[key], value, time.Now()); err != nil {
			return err
		}
	}
	if method == http.MethodPut && maps.Equal(old, cm.Data) {
		return nil
	}
	body, err := json.Marshal(cm)
	if err != nil {
		return fmt.Errorf("encode ConfigMap %s: %w", key, err)
	}
	res, err := p.core.client.Do(ctx, method, path, nil, body)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// merged adds a value to the stored value of a key, as upstream's controller does:
// certificates that have not expired, once each, and the union of other lists. A stored
// value that cannot be read is replaced.
//
// Source: k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust.
func merged(key, stored, value string, now time.Time) (string, error) {
	if strings.HasSuffix(key, "-ca-file") {
		return mergedCertificates(stored, value, now), nil
	}
	var have, want []string
	if err := json.Unmarshal([]byte(value), &want); err != nil {
		return "", fmt.Errorf("decode %s: %w", key, err)
	}
	if stored != "" && json.Unmarshal([]byte(stored), &have) != nil {
		have = nil
	}
	all := []string{}
	for _, s := range append(have, want...) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", key, err)
	}
	return string(text), nil
}

// mergedCertificates returns the certificates of two PEM texts that have not expired, the
// stored ones first, so that a complete value does not change. Own certificates that have
// expired are removed too; otherwise two gateways would replace each other's value for
// ever.
func mergedCertificates(stored, own string, now time.Time) string {
	var out bytes.Buffer
	var have [][]byte
	take := func(text string) {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			cert, err := x509.ParseCertificate(block.Bytes)
			if block.Type != "CERTIFICATE" || err != nil || now.After(cert.NotAfter) ||
				slices.ContainsFunc(have, func(raw []byte) bool { return bytes.Equal(raw, cert.Raw) }) {
				continue
			}
			have = append(have, cert.Raw)
			_ = pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: cert.Raw}) // writes to memory do not fail
		}
	}
	take(stored)
	take(own)
	return out.String()
}

func (p *publisher) data() (map[string]string, error) {
	out := map[string]string{}
	if p.clientCAFile != "" {
		pem, err := os.ReadFile(p.clientCAFile)
		if err != nil {
			return nil, fmt.Errorf("read client CA: %w", err)
		}
		out["client-ca-file"] = string(pem)
	}
	if p.proxyCAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(p.proxyCAFile)
	if err != nil {
		return nil, fmt.Errorf("read front-proxy CA: %w", err)
	}
	out["requestheader-client-ca-file"] = string(pem)
	names := p.proxyNames
	if names == nil {
		names = []string{}
	}
	for key, list := range map[string][]string{
		"requestheader-allowed-names":        names,
		"requestheader-username-headers":     {authn.HeaderUser},
		"requestheader-uid-headers":          {authn.HeaderUID},
		"requestheader-group-headers":        {authn.HeaderGroup},
		"requestheader-extra-headers-prefix": {authn.HeaderExtraPrefix},
	} {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		out[key] = string(text)
	}
	return out, nil
}

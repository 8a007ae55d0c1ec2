package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/loop"
)

// publishInterval is how often the published trust is compared with what it
// should be, as upstream's controller does.
const publishInterval = time.Minute

// publisher keeps ConfigMap kube-system/extension-apiserver-authentication
// (contract 7.2): it tells registered servers which certificates vouch for
// clients and for the front proxy, and in which headers the identity is.
type publisher struct {
	core         *coreClient
	clientCAFile string
	proxyCAFile  string
	proxyNames   []string
	log          *slog.Logger
}

func (p *publisher) run(ctx context.Context) error {
	tick := time.NewTicker(publishInterval)
	defer tick.Stop()
	for {
		err := loop.Retry(ctx, loop.Backoff{Max: maxFollowPause}, func(ctx context.Context) error {
			err := p.publish(ctx)
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
		}
	}
}

// publish writes the ConfigMap if it differs. Keys of others are left alone.
func (p *publisher) publish(ctx context.Context) error {
	want, err := p.data()
	if err != nil {
		return err
	}
	key := resource.Key{Namespace: "kube-system", Name: "extension-apiserver-authentication"}
	_, err = p.core.store("", "configmaps", "ConfigMap").Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		cm := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		}
		if cur != nil {
			if err := json.Unmarshal(cur.Data, cm); err != nil {
				return resource.Mutation{}, fmt.Errorf("decode ConfigMap %s: %w", key, err)
			}
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		maps.Copy(cm.Data, want)
		data, err := json.Marshal(cm)
		if err != nil {
			return resource.Mutation{}, fmt.Errorf("encode ConfigMap %s: %w", key, err)
		}
		o, err := resource.Parse(data)
		return resource.Mutation{Object: o}, err
	})
	return err
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

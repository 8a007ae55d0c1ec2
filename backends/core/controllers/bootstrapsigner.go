package controllers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// The ConfigMap of kube-public from which nodes that join learn the address and the CA of the
// cluster, the key of its data that is signed, and the prefix of those of signatures, which the id
// of the token follows.
const (
	clusterInfo     = "cluster-info"
	clusterInfoKey  = "kubeconfig"
	signaturePrefix = "jws-kubeconfig-"
)

// signClusterInfo keeps the signatures in ConfigMap cluster-info: one by each bootstrap token that
// signs, by which nodes that know the token trust the ConfigMap.
func signClusterInfo(ctx context.Context, env *Env) error {
	secrets, queue := env.bootstrapSecrets(), env.NewQueue("bootstrap_signer_queue")
	infos := coreinformers.NewFilteredConfigMapInformer(env.Client, metav1.NamespacePublic, 0, cache.Indexers{}, func(opts *metav1.ListOptions) {
		opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", clusterInfo).String()
	})
	sign := func() { queue.Add(metav1.NamespacePublic + "/" + clusterInfo) }
	Handle(env, secrets, func(_, _ *corev1.Secret) { sign() })
	Handle(env, infos, func(_, cur *corev1.ConfigMap) {
		if cur != nil {
			sign()
		}
	})
	return env.workBeside(ctx, []cache.SharedIndexInformer{secrets, infos}, Loop{Queue: queue, Workers: 1, Sync: func(ctx context.Context, namespace, name string) error {
		o, found, err := infos.GetStore().GetByKey(namespace + "/" + name)
		if err != nil || !found {
			return err
		}
		info := o.(*corev1.ConfigMap)
		data := env.signed(info, secrets.GetStore().List())
		if data == nil || maps.Equal(data, info.Data) {
			return nil
		}
		info = info.DeepCopy()
		info.Data = data
		_, err = env.Client.CoreV1().ConfigMaps(namespace).Update(ctx, info, metav1.UpdateOptions{})
		return ignoreNotFound(err)
	}})
}

// signed returns the data of cluster-info with the signatures of now; nil if there is nothing to
// sign.
func (e *Env) signed(info *corev1.ConfigMap, secrets []any) map[string]string {
	content, ok := info.Data[clusterInfoKey]
	if !ok {
		return nil
	}
	data := maps.Clone(info.Data)
	maps.DeleteFunc(data, func(key, _ string) bool { return strings.HasPrefix(key, signaturePrefix) })
	for _, o := range secrets {
		id, secret, ok := bootstrapToken(o.(*corev1.Secret)).Signing(e.Clock.Now())
		if !ok {
			continue
		}
		data[signaturePrefix+id] = detachedSignature(content, id, secret)
	}
	return data
}

// detachedSignature returns the JWS of a text without the text (RFC 7515, appendix F), byte by byte
// that of kube-controller-manager: kubeadm compares it with its own.
func detachedSignature(content, id, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + encode([]byte(content)))) // writes to a hash do not fail
	return header + ".." + encode(mac.Sum(nil))
}

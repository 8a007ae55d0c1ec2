// Package encryption encrypts what is stored in etcd, by kube-apiserver's EncryptionConfiguration
// and with its engines: the same file, messages, metrics and stored bytes. It is the only package
// that imports upstream's encryptionconfig.
//
// Upstream calls a key management service (KMS) while it decrypts a value, and waits for it. One
// feed delivers the objects of all resources of a process here, so a KMS that does not answer
// would stop all of them: it is waited for once, and tried again beside (outage.go). The feed
// reads its values again when they can be decrypted.
//
// Runs in: gateway, core, crd. Commands that read etcd use it too.
package encryption

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"portico/resource/etcd"
)

// CheckName is the name of the health check of all KMS v2 plugins, and with Reload of all plugins.
const CheckName = "kms-providers"

// reloadInterval is the pause between two looks at the file. It is a minute upstream.
const reloadInterval = 5 * time.Second

func init() { controller.EncryptionConfigFileChangePollDuration = reloadInterval }

// Config says how values are encrypted.
type Config struct {
	// File is an EncryptionConfiguration; "": values are stored as they are.
	File string
	// Reload reads the file again when it changes.
	Reload bool
	// KMSv1 permits KMS v1. It is upstream's feature gate, and of the whole process.
	KMSv1 bool
	// Host is the name of the host; metrics have its hash, as label apiserver_id_hash.
	Host string
}

// Metrics returns the prefixes of upstream's metrics in the registry of component-base; none without
// a file.
func (cfg *Config) Metrics() []string {
	if cfg.File == "" {
		return nil
	}
	return []string{"apiserver_encryption_config_controller_", "apiserver_envelope_encryption_", "apiserver_storage_transformation_", "apiserver_storage_data_key_generation_", "apiserver_storage_envelope_transformation_"}
}

// Check returns what is wrong with the file. It asks no KMS plugin.
func (cfg *Config) Check() error {
	if cfg.File == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := cfg.load(ctx)
	return err
}

// load reads the file and asks its KMS plugins until ctx ends.
func (cfg *Config) load(ctx context.Context) (*encryptionconfig.EncryptionConfiguration, error) {
	if cfg.KMSv1 {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.KMSv1): true}); err != nil {
			return nil, fmt.Errorf("set feature gate KMSv1: %w", err)
		}
	}
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, cfg.File, cfg.Reload, cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	return loaded, nil
}

// Encryption encrypts by one configuration. It is an etcd.Transformer, safe for concurrent use. The
// nil Encryption is that of a Config without a file; all methods but the Transformer's work with it.
type Encryption struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc

	transformers value.ResourceTransformers
	resources    sync.Map // value.Transformer by schema.GroupResource
	checks       []check
	reload       func(context.Context) // nil: the file is read once
	following    atomic.Bool           // reload has begun
	outages      outages
}

// check is upstream's healthz.HealthChecker.
type check interface {
	Name() string
	Check(*http.Request) error
}

// Open reads the configuration and connects to its KMS plugins, for which it waits once for the time
// that the configuration gives them; they may be away. The result is to be closed.
func Open(cfg Config) (*Encryption, error) {
	if cfg.File == "" {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	// The first configuration ends when it is replaced, or with e.
	first, closeFirst := context.WithCancel(ctx)
	e := &Encryption{cfg: cfg, ctx: ctx, cancel: func() { closeFirst(); cancel() }}
	loaded, err := cfg.load(first)
	if err != nil {
		e.cancel()
		return nil, err
	}
	metrics.RecordEncryptionConfigLastConfigInfo(cfg.Host, loaded.EncryptionFileContentHash)
	if !cfg.Reload {
		e.transformers = encryptionconfig.StaticTransformers(loaded.Transformers)
		for _, c := range loaded.HealthChecks {
			e.checks = append(e.checks, c)
		}
		return e, nil
	}
	dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], closeFirst, loaded.KMSCloseGracePeriod)
	e.transformers, e.checks = dynamic, []check{dynamic}
	e.reload = controller.NewDynamicEncryptionConfiguration("encryption-provider-config-automatic-reload-controller", cfg.File, dynamic,
		loaded.EncryptionFileContentHash, cfg.Host).Run
	return e, nil
}

// Probe asks the KMS plugins of the file once and returns why one cannot be used.
func (cfg Config) Probe(ctx context.Context) error {
	cfg.Reload = false // nothing runs longer than the call
	e, err := Open(cfg)
	if err != nil || e == nil {
		return err
	}
	defer e.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	for _, c := range e.checks {
		err = errors.Join(err, c.Check(r))
	}
	return err
}

// Apply makes a client of etcd encrypt and decrypt.
func (e *Encryption) Apply(to *etcd.Config) {
	if e != nil {
		to.Transformer = e
	}
}

// AddChecks adds the health checks of the KMS plugins under upstream's names.
func (e *Encryption) AddChecks(add func(name string, run func(*http.Request) error)) {
	if e == nil {
		return
	}
	for _, c := range e.checks {
		add(c.Name(), c.Check)
	}
}

// AddPostStartCheck adds the check that Run has begun, if the file is read again, under upstream's name.
func (e *Encryption) AddPostStartCheck(add func(name string, run func() error)) {
	if e == nil || e.reload == nil {
		return
	}
	add("poststarthook/start-encryption-provider-config-automatic-reload", func() error {
		if !e.following.Load() {
			return errors.New("changes of the encryption configuration are not followed yet")
		}
		return nil
	})
}

// Run reloads the configuration until ctx ends.
func (e *Encryption) Run(ctx context.Context) error {
	if e != nil && e.reload != nil {
		e.following.Store(true)
		e.reload(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// Close ends the connections to KMS plugins.
func (e *Encryption) Close() {
	if e != nil {
		e.cancel()
	}
}

// of returns the transformer of a resource.
func (e *Encryption) of(resource schema.GroupResource) value.Transformer {
	if t, ok := e.resources.Load(resource); ok {
		return t.(value.Transformer)
	}
	t, _ := e.resources.LoadOrStore(resource, e.transformers.TransformerForResource(resource))
	return t.(value.Transformer)
}

// ToStorage implements etcd.Transformer.
func (e *Encryption) ToStorage(of schema.GroupResource, data, aad []byte) ([]byte, error) {
	stored, err := e.of(of).TransformToStorage(e.ctx, data, value.DefaultContext(aad))
	if err != nil { // only a KMS fails
		return nil, fmt.Errorf("the KMS provider of %s in --encryption-provider-config cannot encrypt (health check %s): %w", of, CheckName, err)
	}
	return stored, nil
}

// FromStorage implements etcd.Transformer. A KMS that does not answer is waited for once.
func (e *Encryption) FromStorage(of schema.GroupResource, data, aad []byte) (plain []byte, stale bool, err error) {
	plain, stale, err = e.outages.decrypt(e.ctx, data, func() ([]byte, bool, error) {
		return e.of(of).TransformFromStorage(e.ctx, data, value.DefaultContext(aad))
	})
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", lacking(of, data), err)
	}
	return plain, stale, nil
}

// lacking says what a value needs that cannot be decrypted. Upstream's errors name neither provider nor key.
func lacking(of schema.GroupResource, data []byte) string {
	by := strings.SplitN(etcd.Encryption(data), ":", 3)
	switch {
	case len(by) < 3:
		return fmt.Sprintf("it is not encrypted, and --encryption-provider-config has no provider identity for %s", of)
	case by[0] == "kms":
		return fmt.Sprintf("it is encrypted by KMS provider %q (%s), which does not answer (health check %s) or is not in --encryption-provider-config", by[2], by[1], CheckName)
	}
	return fmt.Sprintf("it is encrypted by provider %s (%s) with key %q, which --encryption-provider-config lacks or has with another secret", by[0], by[1], by[2])
}

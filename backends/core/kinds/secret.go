package kinds

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// secrets is the row of v1 Secret.
func secrets() *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{Versions: []string{"v1"}, Resource: "secrets", Kind: "Secret", Namespaced: true},
		Strategy: rest.Strategy{
			Default:        onDefault(defaultSecret),
			Validate:       check(validateSecret),
			ValidateUpdate: checkUpdate(validateSecretUpdate),
			Warnings:       warn(secretWarnings),
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Type", "string", "The purpose of the data, which determines the required keys."),
			column("Data", "string", "The number of keys."), ageColumn(),
		},
		Cells: cells(func(s *corev1.Secret) []any {
			return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp)}
		}),
		FieldLabels: []string{"type"},
		Fields: fieldsOf(func(s *corev1.Secret) map[string]string {
			return map[string]string{"type": string(s.Type)}
		}),
		UnconditionalUpdate: true,
	}
}

// defaultSecret sets the type and moves stringData to data.
func defaultSecret(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// secretWarnings warns of a key of TLS that does not belong to its certificate.
func secretWarnings(s *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("data")
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, validateDataKey(key, path.Key(key))...)
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(path, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretKeys(s, path)...)
}

// validateSecretKeys validates the keys that the secret's type requires. Unknown types require
// none.
func validateSecretKeys(s *corev1.Secret, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	require := func(ok bool, key string) {
		if !ok {
			errs = append(errs, field.Required(path.Key(key), ""))
		}
	}
	has := func(key string) bool { _, ok := s.Data[key]; return ok }
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		// A controller may add the token and the account's uid later.
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		errs = append(errs, validateJSONKey(s.Data, corev1.DockerConfigKey, path)...)
	case corev1.SecretTypeDockerConfigJson:
		errs = append(errs, validateJSONKey(s.Data, corev1.DockerConfigJsonKey, path)...)
	case corev1.SecretTypeBasicAuth:
		// One of them may be missing.
		one := has(corev1.BasicAuthUsernameKey) || has(corev1.BasicAuthPasswordKey)
		require(one, corev1.BasicAuthUsernameKey)
		require(one, corev1.BasicAuthPasswordKey)
	case corev1.SecretTypeSSHAuth:
		require(len(s.Data[corev1.SSHAuthPrivateKey]) > 0, corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		require(has(corev1.TLSCertKey), corev1.TLSCertKey)
		require(has(corev1.TLSPrivateKeyKey), corev1.TLSPrivateKeyKey)
	}
	return errs
}

// validateJSONKey requires a key with a JSON object as value. The error does not contain the
// value.
func validateJSONKey(data map[string][]byte, key string, path *field.Path) field.ErrorList {
	value, ok := data[key]
	if !ok {
		return field.ErrorList{field.Required(path.Key(key), "")}
	}
	if err := json.Unmarshal(value, &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if ptr.Deref(old.Immutable, false) {
		errs = append(errs, validateFrozen(s.Immutable, map[string]bool{
			"data": !reflect.DeepEqual(s.Data, old.Data),
		})...)
	}
	return append(errs, validateSecret(s)...)
}

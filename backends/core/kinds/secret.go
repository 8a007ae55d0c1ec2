package kinds

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Type", "string", "What the data is for; it decides which keys are required."),
			column("Data", "string", "How many keys it holds."), ageColumn(),
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

// defaultSecret sets the type and merges stringData, which is write-only and
// never stored.
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

// validateSecretKeys checks what the secret's type requires. Types it does not
// know require nothing.
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
		// The token and the account's uid may be added later, by a controller.
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		errs = append(errs, validateJSONKey(s.Data, corev1.DockerConfigKey, path)...)
	case corev1.SecretTypeDockerConfigJson:
		errs = append(errs, validateJSONKey(s.Data, corev1.DockerConfigJsonKey, path)...)
	case corev1.SecretTypeBasicAuth:
		// Either may be missing or empty, not both missing.
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

// validateJSONKey requires a key that holds a JSON object. Its content never
// shows up in the error.
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
	if isTrue(old.Immutable) {
		errs = append(errs, validateFrozen(s.Immutable, map[string]bool{
			"data": !reflect.DeepEqual(s.Data, old.Data),
		})...)
	}
	return append(errs, validateSecret(s)...)
}

package inspect

import "time"

// certificateWarning is how long before its end a certificate is warned of; of one that lives less than a year a twelfth
// of its life, as of processes in their logs and /readyz.
const certificateWarning = 30 * 24 * time.Hour

// WarnBefore returns how long before its end a certificate that lives so long is warned of; 0: the life is unknown.
func WarnBefore(life time.Duration) time.Duration {
	if life == 0 {
		return certificateWarning
	}
	return min(certificateWarning, life/12)
}

// Lives are the lifetimes of certificates by file.
type Lives map[string]time.Duration

// CertificateLives returns the lifetimes of the certificates of processes. Those of an earlier version report none.
func (m Metrics) CertificateLives() Lives {
	lives := Lives{}
	for _, s := range m["portico_certificate_lifetime_seconds"] {
		lives[Label(s, "file")] = time.Duration(Value(s) * float64(time.Second))
	}
	return lives
}

// WarnBefore is the function of that name for a file.
func (l Lives) WarnBefore(file string) time.Duration { return WarnBefore(l[file]) }

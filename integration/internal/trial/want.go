package trial

import "testing"

// OK fails the test if a call of the runtime failed; what names the call.
func OK(t testing.TB, what string, a Answer) {
	t.Helper()
	if a.Err != nil {
		t.Errorf("%s: %v", what, a.Err)
	}
}

// WantNothingLeft fails the test unless all is as before the first pod.
func (m *Machine) WantNothingLeft(t testing.TB) {
	t.Helper()
	if left := m.Left(t); left != (Left{}) {
		t.Errorf("left: %+v", left)
	}
	if reserved := Reserved(t, m.Node, "pods"); len(reserved) > 0 {
		t.Errorf("reserved: %v", reserved)
	}
	if records := m.Records(t); records != 0 {
		t.Errorf("%d records are left", records)
	}
	m.NoOverlap(t)
}

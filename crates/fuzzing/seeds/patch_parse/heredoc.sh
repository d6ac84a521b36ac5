apply_patch <<'EOF'
*** Begin Patch
*** Update File: a
*** Move to: f
@@ a
-
+x
*** End of File
*** End Patch
EOF

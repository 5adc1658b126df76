"""The image build: staged context, bake file, base images, compile order."""

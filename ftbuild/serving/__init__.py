"""From a checkpoint to a served answer: conversion, model repository, server, client."""
